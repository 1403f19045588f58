"""A metric of a run as three columns, and fewer points of it that still tell the truth."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Curve:
    """Points in the order of training."""

    steps: Ints
    """(N,)"""
    times: Floats
    """(N,) when they were recorded [s since 1970]."""
    values: Floats
    """(N,) perhaps NaN or infinite."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def last(self) -> float:
        """The newest value."""
        return float(self.values[-1])

    @property
    def broken(self) -> int:
        """How many values are NaN or infinite."""
        return int((~np.isfinite(self.values)).sum())

    def without(self, steps: Ints) -> "Curve":
        """The points of other steps."""
        return self.of(np.flatnonzero(~np.isin(self.steps, steps)))

    def of(self, places: Ints) -> "Curve":
        """The points at these places."""
        return Curve(self.steps[places], self.times[places], self.values[places])

    def drawn(self, buckets: int) -> "Curve":
        """As it is drawn: few points that hide no peak, with a gap where a value is not finite."""
        few = self.of(thinned(self.values, buckets))
        return Curve(few.steps, few.times, gapped(few.values))

    def at(self, steps: Ints) -> Floats:
        """The value at each step, or else the one before it; NaN before the first."""
        return self._at(self.values, steps)

    def at_times(self, steps: Ints) -> Floats:
        """When each step was recorded, or else the one before it; NaN before the first."""
        return self._at(self.times, steps)

    def _at(self, column: Floats, steps: Ints) -> Floats:
        places = np.searchsorted(self.steps, steps, side="right") - 1
        return np.where(places < 0, np.nan, column[np.maximum(places, 0)])


def joined(parts: Sequence[Curve]) -> Curve:
    """One curve of several, by step: a later one may fill the gaps of an earlier one."""
    columns = zip(*((part.steps, part.times, part.values) for part in parts), strict=True)
    whole = Curve(*(np.concatenate(column) for column in columns))
    return whole.of(np.argsort(whole.steps, kind="stable"))


def gapped(values: Floats) -> Floats:
    """NaN in place of what is not finite."""
    return np.where(np.isfinite(values), values, np.nan)


def thinned(values: Floats, buckets: int) -> Ints:
    """The places (M,) of what is drawn of many values, M at most 3 · buckets + 2.

    Of each bucket of neighbours the least, the greatest and the first that is not finite, and both
    ends: no peak and no gap is lost. All places where these are no more than two a bucket.
    """
    count = len(values)
    if count <= 2 * buckets:
        return np.arange(count)
    width = -(-count // buckets)
    padded = np.full(-(-count // width) * width, np.nan)
    padded[:count] = values
    rows = padded.reshape(-1, width)  # (buckets, width)
    broken = ~np.isfinite(rows)
    starts = np.arange(len(rows)) * width
    kept = [
        starts + np.where(broken, np.inf, rows).argmin(1),
        starts + np.where(broken, -np.inf, rows).argmax(1),
        (starts + broken.argmax(1))[broken.any(1)],
        np.array([0, count - 1]),
    ]
    places: Ints = np.unique(np.concatenate(kept))
    return places[places < count]
