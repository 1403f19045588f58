"""The job that evaluates a model: loss and perplexity on a split, and sampled text."""
