"""Update rules and the learning rate over the run."""

from ringshard.optim.build import build, who_gets_what

__all__ = ["build", "who_gets_what"]
