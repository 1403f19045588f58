"""Update rules and the learning rate over the run."""

from ringshard.optim.build import build

__all__ = ["build"]
