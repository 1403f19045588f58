"""The attempts of a run as its folder tells them, for `goodput`."""

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from ringshard.files import read_json
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.state import State
from ringshard.report.goodput import Attempt, Goodput, goodput
from ringshard.report.record import Recorded, Segment, read
from ringshard.tracking.spool import is_node


class Tracked(NamedTuple):
    """Where the time of a run went, as it is tracked."""

    time_ms: int
    """Its last sign, as its files tell it: their own times are others in a copy."""
    step: int
    metrics: dict[str, float]


def tracked(run: RunDir) -> Tracked:
    """The newest step of a run that is over, and where the time went up to the end of its newest
    attempt, as metrics; none where no attempt tells when it began."""
    recorded = read(run.path)
    kept = _kept(run, keeps_all=run.outcome() is Outcome.done)
    made = attempts(run, recorded)
    found = goodput(made, None, time.time(), kept)
    trained = [s for s in recorded.segments if not is_node(s.writer)]
    steps = [int(c.steps[-1]) for s in trained for c in s.curves.values()]
    noted = [float(c.times[-1]) for s in recorded.segments for c in s.curves.values()]
    last = max([*map(_last_sign, made), *noted], default=0.0)
    metrics = found.metrics() if found.wall_ms else {}
    return Tracked(round(last * 1000), max(steps, default=0), metrics)


def attempts(run: RunDir, recorded: Recorded) -> list[Attempt]:
    """Those that have begun, oldest first."""
    found = []
    for number in range(1, run.last_attempt() + 1):
        told = [s for s in recorded.segments if s.is_of_ranks(number)]
        found += _attempt(run, number, told)
    return found


def _attempt(run: RunDir, number: int, segments: Sequence[Segment]) -> list[Attempt]:
    words = ("started", "submitted", "exit")
    started, submitted, end = (read_json(run.attempt(number) / f"{w}.json") or {} for w in words)
    if "time" not in started:
        return []
    failed = bool(end) and not run.result(number)  # its ranks did not come to an end of their own
    curves = [segment.curves for segment in segments]
    return [Attempt(started["time"], submitted.get("time"), end.get("time"), failed, curves)]


def spans(run: RunDir, recorded: Recorded) -> list[tuple[float, float]]:
    """Begin and end of each attempt, as far as anything tells [s since 1970]."""
    return [(one.started, _last_sign(one)) for one in attempts(run, recorded)]


def _last_sign(attempt: Attempt) -> float:
    told = [float(c.times[-1]) for segment in attempt.segments for c in segment.values()]
    return max(attempt.started, attempt.ended or 0.0, *told)


def of_run(run: RunDir, recorded: Recorded, stands: State) -> Goodput:
    """Where a run's time went, up to its last sign; one that waits goes on waiting."""
    newest = run.attempt(run.last_attempt())
    begun = (newest / "started.json").exists() and not (newest / "exit.json").exists()
    submitted = read_json(newest / "submitted.json") or {}
    waits = submitted.get("time") if stands is State.pending and not begun else None
    kept = _kept(run, keeps_all=stands.lives or stands is State.done)
    at_work = stands is State.running and begun
    return goodput(attempts(run, recorded), waits, time.time(), kept, at_work)


def _kept(run: RunDir, keeps_all: bool) -> float:
    """The last step that is left of a run."""
    return math.inf if keeps_all else run.newest_step()
