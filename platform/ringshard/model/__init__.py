"""A causal language model of the transformers library: built on meta, initialised by name, loaded
shard by shard."""
