"""Hydra's side of Ringshard: a sweeper that only expands and a launcher that only composes."""
