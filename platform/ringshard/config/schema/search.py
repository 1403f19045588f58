"""A search: some points of a sweep's ranges are tried, each chosen when others have told."""

from dataclasses import dataclass
from enum import Enum


class Sampler(Enum):
    """Who chooses the values of a trial; none: all combinations of a sweep run."""

    none = "none"
    tpe = "tpe"
    random = "random"


class Pruner(Enum):
    """Which trials are stopped early; median: those whose best value so far is worse than the
    median of the trials that are done at the same step, and those whose value is not finite."""

    none = "none"
    median = "median"


@dataclass
class Search:
    """How the values of a sweep are searched; `launcher.metric` is what is minimized."""

    sampler: Sampler = Sampler.none
    """none, tpe (tree-structured Parzen estimator) or random; of Optuna."""
    trials: int = 20
    """Trials of the search, the failed and stopped ones included; the same command with more goes
    on."""
    seed: int = 1
    """Seed of the sampler: with one trial at a time, the same seed tries the same values."""
    startup_trials: int = 10
    """tpe only: trials with random values before the sampler learns from results."""
    pruner: Pruner = Pruner.none
    """Which trials are stopped early: none, or median."""
    pruner_trials: int = 5
    """median only: trials that have to be done, which those that failed or were stopped are not,
    before another one is compared with them."""
    pruner_step: int = 0
    """median only: no trial is stopped before this step [optimizer steps]."""
