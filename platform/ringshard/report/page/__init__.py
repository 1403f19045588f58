"""One HTML file that shows a comparison, in light and dark, without a network."""
