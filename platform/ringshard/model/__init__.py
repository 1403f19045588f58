"""Transformers models: described, built on the meta device, initialised; head and loss in one."""
