"""The space of a search: what of a command line is tried, and what is fixed.

With `compose`, `opened` and `sentences`, a module that knows Hydra.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep

from ringshard.config.leaves import named
from ringshard.errors import ConfigError

Value = int | float | str


@dataclass(frozen=True)
class Choice:
    """One of several values, in no order: a,b,c, choice(…), glob(…)."""

    key: str
    values: list[str]
    """As an override spells them."""

    def text(self, value: Value) -> str:
        """A value as an override spells it."""
        return str(value)

    @property
    def probes(self) -> list[str]:
        """Values that have to be valid before a search begins."""
        return self.values


@dataclass(frozen=True)
class Steps(Choice):
    """The same in an order: range(…). A point is the place of its value."""

    def text(self, value: Value) -> str:
        """The value at a place."""
        return self.values[int(value)]

    @property
    def probes(self) -> list[str]:
        """Both ends."""
        return [self.values[0], self.values[-1]]


@dataclass(frozen=True)
class Interval:
    """All numbers between two, both included: interval(…), tag(log, …), int(…)."""

    key: str
    low: int | float
    high: int | float
    log: bool

    @property
    def integer(self) -> bool:
        """Whether int(…) asks for whole numbers."""
        return isinstance(self.low, int)

    def text(self, value: Value) -> str:
        """A value as an override spells it."""
        return repr(value)

    @property
    def probes(self) -> list[str]:
        """Both ends."""
        return [repr(self.low), repr(self.high)]


Dimension = Choice | Interval


@dataclass(frozen=True)
class Space:
    """A command line of a search, taken apart."""

    dimensions: list[Dimension]
    fixed: list[str]
    """The other overrides."""
    texts: dict[str, str]
    """The dimensions as they were typed."""

    def overrides(self, point: Mapping[str, Value]) -> list[str]:
        """What a trial at a point adds to the fixed overrides."""
        return [f"{one.key}={one.text(point[one.key])}" for one in self.dimensions]


def is_search(overrides: list[str]) -> bool:
    """Whether a command line asks for a search."""
    chosen = [word.partition("=")[2] for word in overrides if named(word) == "search"]
    return bool(chosen) and chosen[-1] != "none"


def split(parsed: list[Override]) -> Space:
    """The space of a command line; raises ConfigError, in one sentence, for what has no meaning."""
    swept = [override for override in parsed if override.is_sweep_override()]
    dimensions = [_dimension(override) for override in swept]
    if not dimensions:
        raise ConfigError(
            "search has nothing to choose: give a key more than one value, as in"
            " 'optimizer.lr=tag(log,interval(1e-4,1e-2))'"
        )
    fixed = [override.input_line or "" for override in parsed if override not in swept]
    texts = {one.get_key_element(): one.input_line or "" for one in swept}
    if len(texts) < len(swept):
        raise ConfigError(f"{' '.join(texts.values())}: a key has one range")
    return Space(dimensions, fixed, texts)


def _dimension(override: Override) -> Dimension:
    key, asked, line = override.get_key_element(), override.value(), override.input_line
    tags = set(getattr(asked, "tags", ()))
    if isinstance(asked, IntervalSweep):
        return _interval(key, asked, tags, line or "")
    if tags:
        raise ConfigError(f"{line}: a tag goes with interval(), as in tag(log,interval(1e-4,1e-2))")
    values = list(override.sweep_string_iterator())
    if len(values) < 2:
        raise ConfigError(f"{line} has {len(values)} values: give two or more")
    ordered = isinstance(asked, RangeSweep) and not asked.shuffle
    return Steps(key, values) if ordered else Choice(key, list(dict.fromkeys(values)))


def _interval(key: str, asked: IntervalSweep, tags: set[str], line: str) -> Interval:
    low, high = asked.start, asked.end
    assert low is not None and high is not None
    if tags - {"log"}:
        raise ConfigError(f"{line}: {', '.join(sorted(tags - {'log'}))} is no tag; log is one")
    if not low < high:
        raise ConfigError(f"{line}: an interval begins below its end, as in interval({high},{low})")
    if "log" in tags and low <= 0:
        raise ConfigError(f"{line}: a logarithm needs a begin above 0; raise {low}")
    return Interval(key, low, high, "log" in tags)
