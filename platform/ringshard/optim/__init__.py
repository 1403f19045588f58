"""Update rules and the learning rate over the run."""

from ringshard.optim.build import build, release, who_gets_what

__all__ = ["build", "release", "who_gets_what"]
