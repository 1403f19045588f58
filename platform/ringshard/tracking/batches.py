"""Lines of a spool, gathered into requests of bounded size."""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ringshard.tracking.names import clean
from ringshard.tracking.repeats import MISMATCH, Repeats
from ringshard.tracking.spool import Record, SpoolFile, is_node, read_spool

ATTEMPT = "run/attempt"
"""Number of the attempt, where a start of the ranks recorded its first line."""


class Point(NamedTuple):
    """One value of one metric, exactly as it is sent: equal points are one row in MLflow."""

    key: str
    value: float
    time_ms: int
    step: int


@dataclass
class Batch:
    """Whole lines of a spool that travel together."""

    offset: int
    """Where they end [bytes]."""
    points: list[Point] = field(default_factory=list)
    dropped: int = 0
    """Lines refused by the disk from the spool's start on."""
    damaged: int = 0
    """Lines among these with a wrong checksum."""
    mismatches: list[int] = field(default_factory=list)
    """Steps that were trained again and came out otherwise."""


def batches(spool: SpoolFile, offset: int, size: int, repeats: Repeats) -> Iterator[Batch]:
    """What a spool holds from a byte offset on, at most `size` points a batch or else one line."""
    batch, begins = Batch(offset), offset == 0 and not is_node(spool.writer)
    for record, end in read_spool(spool.path, offset):
        apart = repeats.mismatch(record) if record else None
        points = _points(spool, record, apart) if record else []
        if record and begins:
            points.append(Point(ATTEMPT, spool.attempt, _ms(record), record.step))
            begins = False
        if batch.points and len(batch.points) + len(points) > size:
            yield batch
            batch = Batch(batch.offset)
        batch.points += points
        batch.offset = end
        batch.dropped = max(batch.dropped, record.dropped if record else 0)
        batch.damaged += record is None
        batch.mismatches += [record.step] if record and apart else []
    if batch.offset > offset:
        yield batch


def points_at(spool: SpoolFile, steps: Collection[int], keys: Collection[str]) -> Iterator[Point]:
    """The points of some metrics at some steps, exactly as they are sent."""
    for record, _ in read_spool(spool.path):
        if record and record.step in steps:
            yield from (point for point in _points(spool, record, None) if point.key in keys)


def _points(spool: SpoolFile, record: Record, apart: float | None) -> list[Point]:
    """The new points of a line; infinity goes as NaN (MLflow keeps 1.8e308, which ruins plots)."""
    found = spool.fresh(record) | ({} if apart is None else {MISMATCH: apart})
    return [
        Point(clean(key), value if math.isfinite(value) else math.nan, _ms(record), record.step)
        for key, value in found.items()
    ]


def _ms(record: Record) -> int:
    return round(record.time * 1000)
