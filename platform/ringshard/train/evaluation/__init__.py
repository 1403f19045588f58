"""The job that evaluates a model: loss, perplexity and accuracy on a split, and sampled text."""
