"""What differs between runs, and which of them are one experiment with several seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from ringshard.config.leaves import under
from ringshard.report.compared import Compared

_INCIDENTAL = (
    "output",
    "tracking",
    "launcher",
    "debug",
    "sweep",
    "search",
    "user.path",
    "data.cache",
    "data.prepared",
)
"""Where a run lies and how it is watched; nothing that shows in a curve."""
_DIGEST = "data.digest"
"""Of the rows: it follows from the other settings of the data as long as the texts stay."""
SEEDS = ("train.seed",)
"""What may differ within a group."""


def differences(runs: Sequence[Compared]) -> list[str]:
    """The configuration keys in which the runs differ, in the order of the job file."""
    keys = dict.fromkeys(key for run in runs for key in run.config)
    found = [key for key in keys if not under(key, _INCIDENTAL) and _kinds(runs, [key]) > 1]
    data = [key for key in found if key.startswith("data.") and key != _DIGEST]
    is_told = _kinds(runs, data) == _kinds(runs, [*data, _DIGEST])
    return [key for key in found if key != _DIGEST or not is_told]


def telling(runs: Sequence[Compared], keys: Sequence[str]) -> list[str]:
    """Those of the keys that tell runs apart which the ones before do not: without those that go
    with another one, as `processes_per_node` does with a degree of the mesh."""
    found: list[str] = []
    known = 1
    for key in keys:
        count = _kinds(runs, [*found, key])
        if count > known:
            found, known = [*found, key], count
    return found


def by_seed(runs: Sequence[Compared]) -> list[list[int]]:
    """Places of runs that differ in their seed alone, in the order of the first of each."""
    keys = [key for key in differences(runs) if key not in SEEDS]
    found: dict[tuple[str, ...], list[int]] = {}
    for place, run in enumerate(runs):
        found.setdefault(_values(run, keys), []).append(place)
    return list(found.values())


def _values(run: Compared, keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(repr(run.config.get(key)) for key in keys)


def _kinds(runs: Sequence[Compared], keys: Sequence[str]) -> int:
    """How many different values of all these keys there are."""
    return len({_values(run, keys) for run in runs})


@dataclass(frozen=True)
class Spread:
    """Numbers of several seeds."""

    count: int
    mean: float
    deviation: float | None
    """Of the sample; None of a single number."""
    left_out: int
    """Numbers that are NaN or infinite."""


def spread(values: Sequence[float | None]) -> Spread | None:
    """Mean and deviation of the numbers that are there; None where there is none."""
    there = [value for value in values if value is not None]
    finite = [value for value in there if math.isfinite(value)]
    if not there:
        return None
    middle = mean(finite) if finite else math.nan
    deviation = stdev(finite) if len(finite) > 1 else None
    return Spread(len(finite), middle, deviation, len(there) - len(finite))


LONGEST_LABEL = 48
"""Of a legend [characters]."""


def shown(value: object) -> str:
    """A value of a configuration in few characters."""
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)


def labels(runs: Sequence[Compared]) -> list[str]:
    """Short names for a legend: what differs, where that tells the runs apart."""
    keys = telling(runs, differences(runs))
    told = [told_apart(run, keys) for run in runs]
    readable = all(len(text) <= LONGEST_LABEL for text in told)
    return told if readable and len(set(told)) == len(runs) > 1 else unique_names(runs)


def told_apart(run: Compared, keys: Sequence[str]) -> str:
    """A run's values of these keys."""
    return ", ".join(f"{key.split('.')[-1]}={shown(run.config.get(key))}" for key in keys)


def unique_names(runs: Sequence[Compared]) -> list[str]:
    """Names of the runs, with their place where two have the same."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({run.place})"
        for name, run in zip(names, runs, strict=True)
    ]
