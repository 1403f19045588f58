"""What reports see of a run, wherever it was read: from its folder, or from MLflow."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from ringshard.report.curve import Curve, Floats
from ringshard.report.goodput import Goodput
from ringshard.tracking.spool import SYSTEM


class Compared(Protocol):
    """A run to be compared."""

    @property
    def name(self) -> str: ...
    @property
    def place(self) -> str:
        """Where it is found."""
        ...

    @property
    def state(self) -> str:
        """Where it stands, perhaps diverged, perhaps with an incomplete record."""
        ...

    @property
    def config(self) -> Mapping[str, object]:
        """Every value by its dotted key; raises ConfigError where nothing tells."""
        ...

    @property
    def code(self) -> str:
        """The commit that it ran; empty where nothing tells."""
        ...

    @property
    def curves(self) -> Mapping[str, Curve]:
        """Every metric."""
        ...

    @property
    def newest(self) -> Sequence[Mapping[str, Curve]]:
        """What each start of its newest attempt has recorded: an earlier attempt may have had other
        hardware."""
        ...

    @property
    def faults(self) -> list[str]:
        """What its record lacks, in words."""
        ...

    @property
    def goodput(self) -> Goodput | None:
        """Where its wall time went; None where nothing tells."""
        ...

    @property
    def bigram_entropy(self) -> float | None:
        """What a model of token pairs would reach on the validation split [nats per token]."""
        ...

    def worked(self, times: Floats) -> Floats:
        """Seconds of work before these times [s since 1970]."""
        ...


def last(run: Compared, metric: str) -> float | None:
    """The newest value of a metric."""
    return run.curves[metric].last if metric in run.curves else None


def twin(metric: str) -> str:
    """What is measured of it on the validation split; itself where there is no such thing."""
    return metric.replace("train/", "val/", 1)


def is_timed(metric: str) -> bool:
    """Whether it is of a node, which notes seconds in place of steps."""
    return metric.startswith(SYSTEM)


def step(run: Compared) -> int:
    """The newest step that was recorded."""
    trained = [key for key in run.curves if not is_timed(key)]
    chosen = ["train/loss"] if "train/loss" in trained else trained
    return max((int(run.curves[key].steps[-1]) for key in chosen), default=0)


def tokens_per_s(run: Compared) -> float | None:
    """Tokens over seconds of its newest attempt [tokens/s]."""
    return _over_intervals(run, "perf/tokens_per_s")


def mfu(run: Compared) -> float | None:
    """Model FLOPs utilization of its newest attempt."""
    return _over_intervals(run, "perf/mfu")


def _over_intervals(run: Compared, key: str) -> float | None:
    """A rate of all tokens together: the harmonic mean over the intervals, weighted by their
    tokens. The first interval of each start, which warms up, counts only where there is no other.
    """
    starts = [start for start in run.newest if key in start]
    if not starts:
        return None
    made, rates = map(
        np.concatenate, zip(*(_measured(start, key) for start in starts), strict=True)
    )
    return float(made.sum() / (made / rates).sum()) if made.sum() > 0 else starts[-1][key].last


def _measured(start: Mapping[str, Curve], key: str) -> tuple[Floats, Floats]:
    """Tokens of each interval but the first, and its rate."""
    rate, tokens = start[key], start.get("train/tokens")
    made = np.zeros(0) if tokens is None else np.diff(tokens.at(rate.steps))
    return made, rate.values[len(rate) - len(made) :]


AXES = {
    "step": ("step", "steps"),
    "tokens": ("target tokens", "train/tokens"),
    "time": ("time at work [h]", "times"),
    "flops": ("training FLOPs", "train/flops"),
}
"""Name of an axis -> its title, and where its numbers come from."""


def along(run: Compared, metric: str, curve: Curve, axis: str) -> Floats:
    """Where points of a metric's curve lie on an axis; NaN where nothing tells."""
    if axis == "time":
        return run.worked(curve.times) / 3600
    if is_timed(metric):
        return np.full(len(curve), np.nan)
    if axis == "step":
        return curve.steps.astype(np.float64)
    source = run.curves.get(AXES[axis][1])
    return np.full(len(curve), np.nan) if source is None else source.at(curve.steps)
