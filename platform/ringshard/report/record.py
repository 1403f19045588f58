"""What the spools of a run hold, as columns: a run of many thousand steps is read in no time.

The lines are checked one by one as `tracking.spool` does, and parsed together.
"""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from ringshard.report.curve import Curve, Ints, joined
from ringshard.tracking.spool import is_node, listed, unsealed


@dataclass(frozen=True)
class Segment:
    """One spool: what one start of the ranks has recorded, in the order of recording."""

    attempt: int
    writer: str
    curves: Mapping[str, Curve]
    damaged: int = 0
    """Lines with a wrong checksum."""
    dropped: int = 0
    """Lines that the disk refused."""

    def is_of_ranks(self, attempt: int) -> bool:
        """Whether the ranks of this attempt have recorded it, and not a node."""
        return self.attempt == attempt and not is_node(self.writer)


@dataclass(frozen=True)
class Recorded:
    """All segments of a run, oldest first."""

    segments: Sequence[Segment] = field(default_factory=list)

    @property
    def damaged(self) -> int:
        """Lines with a wrong checksum."""
        return sum(segment.damaged for segment in self.segments)

    @property
    def dropped(self) -> int:
        """Lines that the disk refused."""
        return sum(segment.dropped for segment in self.segments)

    def curves(self) -> dict[str, Curve]:
        """Every metric over all segments."""
        parts: dict[str, list[Curve]] = {}
        for segment in self.fresh():
            for key, curve in segment.curves.items():
                parts.setdefault(key, []).append(curve)
        return {key: joined(curves) for key, curves in parts.items()}

    def fresh(self) -> Iterator[Segment]:
        """The segments without what a resumed run passes again, as `SpoolFile.fresh` has it; time
        never passes again."""
        known: dict[tuple[str, str], list[Ints]] = {}
        for segment in self.segments:
            curves = {}
            for key, curve in segment.curves.items():
                before = known.setdefault((segment.writer, key), [])
                fresh = curve.without(np.concatenate(before)) if before else curve
                if len(fresh):
                    curves[key] = fresh
                    before += [] if is_node(segment.writer) else [fresh.steps]
            yield replace(segment, curves=curves)


def read(run_dir: Path) -> Recorded:
    """All that a run has recorded."""
    return Recorded([_segment(s.path, s.attempt, s.writer) for s in listed(run_dir)])


def _segment(path: Path, attempt: int, writer: str) -> Segment:
    *lines, _unfinished = path.read_bytes().split(b"\n")
    whole = [line for line in lines if line]
    bodies = [body for body in map(unsealed, whole) if body is not None]
    table = _table(bodies)
    return Segment(attempt, writer, _curves(table), len(whole) - len(bodies), _dropped(table))


def _table(bodies: list[bytes]) -> Any:
    """An Arrow table of JSON lines, in their order."""
    if not bodies:
        return pa.table({})
    if any(b"NaN" in body or b"Infinity" in body for body in bodies):  # which JSON does not know
        return pa.Table.from_pylist(_uniform([json.loads(body) for body in bodies]))
    text = b"\n".join(bodies)
    options = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    return arrow_json.read_json(io.BytesIO(text), options)


def _uniform(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records whose first one names all fields: Arrow takes them from it."""
    keys = dict.fromkeys(key for record in records for key in record["metrics"])
    return [
        {
            **record,
            "metrics": {key: record["metrics"].get(key) for key in keys},
            "dropped": record.get("dropped"),
        }
        for record in records
    ]


def _curves(table: Any) -> dict[str, Curve]:
    if "metrics" not in table.column_names:
        return {}
    metrics = table["metrics"].combine_chunks()
    steps, times = (table[name].to_numpy() for name in ("step", "time"))
    found = {}
    for name, column in zip(metrics.type.names, metrics.flatten(), strict=True):
        there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        values = column.to_numpy(zero_copy_only=False).astype(np.float64)
        found[name] = Curve(steps[there], times[there].astype(np.float64), values[there])
    return found


def _dropped(table: Any) -> int:
    """The last count that a line tells."""
    if "dropped" not in table.column_names:
        return 0
    told = [count for count in table["dropped"].to_pylist() if count is not None]
    return told[-1] if told else 0
