"""The record of a run's metrics: one checksummed JSON line per call, in files of the run directory.

The training process appends (`Spool`); the shipper and the reports read (`spools`, `read_spool`).
A line is `{"time": s, "step": n, "metrics": {…}, "crc": "…"}`: CRC-32 of all that precedes the crc.
"""

import json
import os
import re
import sys
import time
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ringshard.files import sync

_NODE = "node-"
SYSTEM = "system/"
"""Beginning of the metrics that nodes note."""
_NAME = re.compile(r"spool-(\d+)\.(\d+)-(.+)\.jsonl")
_TAIL = 64 * 1024
"""What `last_lines` reads [bytes]."""
_SEAL = len(',"crc":"00000000"}')


@dataclass(frozen=True)
class Record:
    """One line: `time` [s since 1970], `step`, `metrics`, and the lines `dropped` so far."""

    time: float
    step: int
    metrics: dict[str, float]
    dropped: int = 0


class Spool:
    """Appends metrics to `run_dir/track/spool-<attempt>.<restart>-<writer>.jsonl`; never raises.

    What the disk refuses is dropped and counted in `dropped`; the next line that fits says so, at
    the latest the one that `close` adds for it.
    """

    def __init__(
        self, run_dir: Path, attempt: int, writer: str = "rank0", restart: int = 0
    ) -> None:
        self.dropped = 0
        self._told = self._step = 0  # dropped lines that the file knows of; newest step
        self._unfinished = False
        self._file: int | None = None
        self.path = run_dir / "track" / f"spool-{attempt}.{restart}-{writer}.jsonl"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._unfinished = os.fstat(self._file).st_size > 0  # an earlier process may have died
            sync(self.path.parent)
            sync(run_dir)
        except OSError:
            pass  # every line that the disk refuses is counted as dropped

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append the metrics of a step in one write."""
        self._step = step
        try:
            self._write(_seal(step, metrics, self.dropped))
            self._told = self.dropped
        except Exception:  # whatever a hook gives must not end the training
            self.dropped += 1

    def _write(self, line: bytes) -> None:
        if self._file is None:
            raise OSError("the spool could not be opened")
        if self._unfinished:
            line = b"\n" + line
        written = os.write(self._file, line)
        if written < len(line):
            self._take_back(self._file, written)
            raise OSError("the disk took a part of the line")
        self._unfinished = False

    def _take_back(self, file: int, written: int) -> None:
        """A part of a line would count as damaged beside dropped, and its room may do for less."""
        try:
            os.ftruncate(file, os.fstat(file).st_size - written)
        except OSError:
            self._unfinished = True

    def sync(self) -> None:
        """Bring to the disk what was logged, as far as the disk lets it."""
        if self._file is not None:
            with suppress(OSError):
                os.fsync(self._file)

    def close(self) -> None:
        """Close the file; later calls of `log` only count.

        Dropped lines that the disk won't even hear of are told on stderr.
        """
        if self.dropped > self._told:
            with suppress(OSError):
                self._write(_seal(self._step, {}, self.dropped))
                self._told = self.dropped
        if self.dropped > self._told:
            with suppress(OSError):
                print(f"{self.path}: {self.dropped} lines were lost", file=sys.stderr, flush=True)
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None


def _seal(step: int, metrics: Mapping[str, float], dropped: int) -> bytes:
    numbers = {key: float(value) for key, value in metrics.items()}
    record: dict[str, Any] = {"time": round(time.time(), 3), "step": step, "metrics": numbers}
    if dropped:
        record["dropped"] = dropped
    body = json.dumps(record, separators=(",", ":"))[:-1].encode()
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def read_spool(path: Path, offset: int = 0) -> Iterator[tuple[Record | None, int]]:
    """Records of a spool from a byte offset on, each with the offset behind it.

    None stands for a line that is damaged. A last line without its end is still being written: it
    is left for the next call.
    """
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            if line != b"\n":
                yield opened(line[:-1]), offset


def last_lines(file: Path) -> list[bytes]:
    """Whole lines near the end of a spool."""
    with file.open("rb") as tail:
        begin = max(0, tail.seek(0, os.SEEK_END) - _TAIL)
        tail.seek(begin)
        lines = tail.read().split(b"\n")[:-1]  # what follows the last end is still being written
    return lines[1:] if begin else lines


def last_step(file: Path) -> int:
    """The newest step that a spool tells of; 0: none."""
    return max((found.step for found in map(opened, last_lines(file)) if found), default=0)


def opened(line: bytes) -> Record | None:
    """The record of a line without its end; None where it is damaged."""
    body = unsealed(line)
    return None if body is None else Record(**json.loads(body))


def unsealed(line: bytes) -> bytes | None:
    """A line without its checksum and its end, still JSON; None where it is damaged."""
    body, seal = line[:-_SEAL], line[-_SEAL:]
    return body + b"}" if seal == b',"crc":"%08x"}' % zlib.crc32(body) else None


class Steps:
    """A set of steps, in the memory of its runs of neighbours: for most metrics one."""

    def __init__(self, bounds: Iterable[int] = ()) -> None:
        self._bounds = list(bounds)  # where a run begins, and the step after it, in turn

    def __contains__(self, step: int) -> bool:
        return bisect_right(self._bounds, step) % 2 == 1

    def add(self, step: int) -> None:
        """Make it one of the set."""
        if step in self:
            return
        for bound in (step, step + 1):  # one that is there already joins two runs
            place = bisect_left(self._bounds, bound)
            if self._bounds[place : place + 1] == [bound]:
                del self._bounds[place]
            else:
                self._bounds.insert(place, bound)

    def copy(self) -> "Steps":
        """The same steps, in a set of their own."""
        return Steps(self._bounds)


@dataclass
class SpoolFile:
    """A spool of a run, its place in the history, and what earlier ones hold."""

    path: Path
    attempt: int
    restart: int
    writer: str
    known: dict[str, Steps] = field(default_factory=dict)
    """Steps of each metric in the writer's earlier spools: a resumed run passes them again."""

    def fresh(self, record: Record) -> dict[str, float]:
        """The metrics of a record that no earlier spool of this writer holds."""
        return {k: v for k, v in record.metrics.items() if record.step not in self.known.get(k, ())}

    def among(self, history: Iterable["SpoolFile"]) -> list["SpoolFile"]:
        """The earlier spools of this writer."""
        mine = (self.attempt, self.restart)
        return [s for s in history if s.writer == self.writer and (s.attempt, s.restart) < mine]


def node_writer(node: int) -> str:
    """The writer of a node, which notes seconds in place of steps."""
    return f"{_NODE}{node}"


def is_node(writer: str) -> bool:
    """Whether a writer is a node, and not a rank."""
    return writer.startswith(_NODE)


def listed(run_dir: Path) -> list[SpoolFile]:
    """All spools of a run, oldest first, none of them read."""
    found = []
    for path in (run_dir / "track").glob("spool-*.jsonl"):
        if match := _NAME.fullmatch(path.name):
            found.append(SpoolFile(path, int(match[1]), int(match[2]), match[3]))
    return sorted(found, key=lambda spool: (spool.attempt, spool.restart, spool.writer))


def spools(run_dir: Path) -> list[SpoolFile]:
    """All spools of a run, oldest first, each with what earlier ones hold (these are read for it).

    Before those of nodes nothing is: time never passes twice.
    """
    found = listed(run_dir)
    for writer in {spool.writer for spool in found if not is_node(spool.writer)}:
        _look_back([spool for spool in found if spool.writer == writer])
    return found


def _look_back(history: list[SpoolFile]) -> None:
    for earlier, later in pairwise(history):
        later.known = {key: steps.copy() for key, steps in earlier.known.items()}
        for record, _ in read_spool(earlier.path):
            if record is not None:
                for key in record.metrics:
                    later.known.setdefault(key, Steps()).add(record.step)
