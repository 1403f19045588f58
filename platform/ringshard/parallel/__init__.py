"""The device mesh, and how a model is laid on it."""
