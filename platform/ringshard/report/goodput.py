"""Where the wall time of a run went: parts that sum to it, to the millisecond.

A run is a row of attempts, each with what its starts of the ranks have recorded. Time passes from
one report of training to the next: a part takes the seconds that are told of it, as far as there
are so many; what is left has a name of its own. So the parts cannot overlap or leave a gap,
whatever the clocks of several machines say.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ringshard.report.curve import Curve

PARTS = {
    "training": "steps that the final weights are made of",
    "lost": "steps without a checkpoint that were trained again or are gone, and what an attempt "
    "that did not end in order did last",
    "data": "waiting for data",
    "evaluation": "loss on the validation split",
    "checkpoint": "training stood still to save",
    "startup": "from an attempt's begin to its first step, and from a crash to the next one",
    "queue": "submitted, and waiting for machines",
    "idle": "between two attempts, with nothing submitted",
    "other": "hooks, shutting down",
}


@dataclass(frozen=True)
class Attempt:
    """One attempt, in seconds since 1970."""

    started: float
    submitted: float | None = None
    """When it was put in a queue; of one that was queued again, the first time."""
    ended: float | None = None
    """None: nobody told."""
    failed: bool = False
    """Whether it ended, and not in order."""
    segments: Sequence[Mapping[str, Curve]] = field(default_factory=list)
    """What its starts of the ranks have recorded, metric by metric."""


@dataclass(frozen=True)
class Goodput:
    """Wall time by part [ms]."""

    parts: Mapping[str, int]

    @property
    def wall_ms(self) -> int:
        """From the first sign of the run to its last."""
        return sum(self.parts.values())

    @property
    def fraction(self) -> float:
        """The share of training that was kept; 0 where no time has passed."""
        return self.parts["training"] / self.wall_ms if self.wall_ms else 0.0

    @property
    def seconds(self) -> dict[str, float]:
        """Every part [s]."""
        return {name: value / 1000 for name, value in self.parts.items()}

    def metrics(self) -> dict[str, float]:
        """As tracked."""
        told = {f"goodput/{name}_s": seconds for name, seconds in self.seconds.items()}
        return told | {"goodput/fraction": self.fraction}


def total(runs: Iterable[Goodput]) -> Goodput:
    """The parts of several runs together."""
    every = list(runs)
    return Goodput({name: sum(one.parts[name] for one in every) for name in PARTS})


def spent(told: Goodput) -> list[str]:
    """A line for each part that took any time, the longest first."""
    if not told.wall_ms:
        return []
    parts = sorted(((ms, part) for part, ms in told.parts.items() if ms), reverse=True)
    return [f"\ntime     {clock(told.wall_ms)} from its first sign to its last"] + [
        f"  {part:<11}{clock(ms):>10}  {ms / told.wall_ms:>6.1%}  {PARTS[part]}"
        for ms, part in parts
    ]


def clock(ms: int) -> str:
    """Milliseconds as people say them."""
    minutes, seconds = divmod(ms / 1000, 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours}:{minutes:02}:{int(seconds):02}"
    return f"{minutes}:{int(seconds):02}" if minutes else f"{seconds:.1f} s"


def goodput(
    attempts: Sequence[Attempt],
    waits_since: float | None,
    now: float,
    kept: float = math.inf,
    at_work: bool = False,
) -> Goodput:
    """Where the time of these attempts went, in their order.

    waits_since: when an attempt was submitted that has not begun by now.
    kept: the last step that is left of them, where they are not at work and not done.
    at_work: whether the newest is: until it has trained, it starts.
    """
    limits = iter(_kept_up_to([s for attempt in attempts for s in attempt.segments], kept))
    signs = [(a.submitted, a.started) for a in attempts] or [(waits_since, now)]
    clock = _Clock(min(_ms(time) for time in signs[0] if time is not None))
    for attempt in attempts:
        clock.await_start(attempt.submitted, attempt.started)
        for segment in attempt.segments:
            _pass(clock, _events(segment, next(limits)))
        if attempt.ended is not None:
            began = any(map(_steps, attempt.segments))
            tail = ("lost" if began else "startup") if attempt.failed else "other"
            clock.spend(tail, _ms(attempt.ended))
    if waits_since is not None:
        clock.await_start(waits_since, now)
    elif at_work and attempts and not any(map(_steps, attempts[-1].segments)):
        clock.spend("startup", _ms(now))
    return Goodput(clock.parts)


class _Event(NamedTuple):
    time_ms: int
    """When it was over."""
    takes: Mapping[str, float]
    """Seconds by part."""


class _Clock:
    """What of the time has been told of; it never goes back."""

    def __init__(self, begin_ms: int) -> None:
        self.now_ms = begin_ms
        self.parts = dict.fromkeys(PARTS, 0)

    def spend(self, part: str, until_ms: int) -> None:
        """All the time up to then."""
        self.take(part, until_ms - self.now_ms)

    def take(self, part: str, ms: int) -> None:
        self.parts[part] += max(ms, 0)
        self.now_ms += max(ms, 0)

    def await_start(self, submitted: float | None, started: float) -> None:
        """Nothing is submitted, then it waits, then it begins."""
        if submitted is not None:
            self.spend("idle", min(_ms(submitted), _ms(started)))
        self.spend("idle" if submitted is None else "queue", _ms(started))


def _pass(clock: _Clock, events: Iterable[_Event]) -> None:
    """From one report of training to the next; evaluations and saves may fall between."""
    rest, takes = "startup", dict.fromkeys(PARTS, 0.0)
    ordered = sorted(events, key=lambda event: event.time_ms)
    for place, event in enumerate(ordered, 1):
        takes = {part: seconds + event.takes.get(part, 0) for part, seconds in takes.items()}
        if "training" in event.takes or place == len(ordered):
            taken = _fitting(takes, event.time_ms - clock.now_ms)
            clock.spend(rest, event.time_ms - sum(taken.values()))
            for part, ms in taken.items():
                clock.take(part, ms)
            rest, takes = "other", dict.fromkeys(PARTS, 0.0)


def _fitting(takes: Mapping[str, float], room_ms: int) -> dict[str, int]:
    """Seconds as milliseconds, no more than there is room for, the first ones first."""
    taken = {}
    for part, seconds in takes.items():
        taken[part] = max(min(_ms(seconds), room_ms), 0)
        room_ms -= taken[part]
    return taken


def _ms(seconds: float) -> int:
    return round(1000 * _sound(seconds))


def _sound(number: float) -> float:
    return float(number) if np.isfinite(number) else 0.0


def _steps(segment: Mapping[str, Curve]) -> int:
    return len(segment.get("train/loss", ()))


def _kept_up_to(segments: Sequence[Mapping[str, Curve]], limit: float) -> list[float]:
    """The last step of each segment that is left, and that no later one trained again."""
    limits = []
    for segment in reversed(segments):
        limits.append(limit)
        if _steps(segment):
            limit = min(limit, float(segment["train/loss"].steps[0]) - 1)
    return limits[::-1]


_TOLD = {
    "val/seconds": "evaluation",
    "checkpoint/stall_s": "checkpoint",
    "checkpoint/finish_s": "checkpoint",
}


def _events(segment: Mapping[str, Curve], limit: float) -> Iterable[_Event]:
    for key, part in _TOLD.items():
        if key in segment:
            for time, value in zip(segment[key].times, segment[key].values, strict=True):
                yield _Event(_ms(float(time)), {part: float(value)})
    if _steps(segment) and "perf/step_s" in segment:
        yield from _intervals(segment, limit)


def _intervals(segment: Mapping[str, Curve], limit: float) -> Iterable[_Event]:
    """Training, an event each time that it was reported."""
    step_s = segment["perf/step_s"]
    waits = segment["perf/data_wait"].at(step_s.steps) if "perf/data_wait" in segment else None
    before = int(segment["train/loss"].steps[0]) - 1
    for place, (step, time) in enumerate(zip(step_s.steps, step_s.times, strict=True)):
        count = max(int(step) - before, 0)
        lost = min(max(step - max(limit, before), 0), count) / max(count, 1)
        seconds = _sound(step_s.values[place]) * count
        data = 0.0 if waits is None else seconds * _sound(waits[place]) * (1 - lost)
        takes = {"training": seconds * (1 - lost) - data, "lost": seconds * lost, "data": data}
        yield _Event(_ms(float(time)), takes)
        before = int(step)
