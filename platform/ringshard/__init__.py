"""Ringshard: one path from a Hydra config to a training curve, on a laptop or a cluster."""
