"""Steps that a resumed run trains again: sent once, and compared with what was recorded before.

On the same topology they are the same bits (C5); where they are not, `resume/mismatch` says by how
much. So every resume is a check of determinism, for nothing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ringshard.config.schema.hardware import Hardware
from ringshard.files import read_json
from ringshard.launch.identity import signature
from ringshard.launch.rundir import RunDir
from ringshard.tracking.spool import Record, SpoolFile, read_spool

MISMATCH = "resume/mismatch"
"""Largest relative difference of a step that was trained again; 0: the same bits."""
_DETERMINED = (
    *("train/loss", "train/grad_norm", "train/lr", "train/targets", "train/tokens"),
    *("val/loss", "val/accuracy", "val/ema_loss"),
)
_CODE = ("git", "python", "packages")


@dataclass
class Repeats:
    """What the spools before one hold of steps that it may hold again."""

    spool: SpoolFile
    earlier: Sequence[SpoolFile]
    """Oldest first."""
    is_same: Callable[[int, int], bool]
    """Whether two attempts must train the same bits."""
    _values: dict[tuple[str, int], float] | None = field(default=None, init=False)

    def mismatch(self, record: Record) -> float | None:
        """How far a record is from what was recorded before; None: nothing was to compare with."""
        again = {
            key: value
            for key, value in record.metrics.items()
            if key in _DETERMINED and record.step in self.spool.known.get(key, ())
        }
        if not again:
            return None
        before = self._before(record.step)
        places = [(value, before.get((key, record.step))) for key, value in again.items()]
        return max((_apart(new, old) for new, old in places if old is not None), default=None)

    def _before(self, step: int) -> dict[tuple[str, int], float]:
        """Read when the first repeated step is met: all that follow it are the later ones."""
        if self._values is None:
            self._values = {}
            for spool in self.earlier:
                if self.is_same(spool.attempt, self.spool.attempt):
                    self._read(spool, step)
        return self._values

    def _read(self, spool: SpoolFile, step: int) -> None:
        assert self._values is not None
        for record, _ in read_spool(spool.path):
            if record is not None and record.step >= step:
                for key in _DETERMINED:
                    if key in record.metrics:
                        self._values.setdefault((key, record.step), record.metrics[key])


def _apart(new: float, old: float) -> float:
    if new == old or (math.isnan(new) and math.isnan(old)):
        return 0.0
    if not (math.isfinite(new) and math.isfinite(old)):
        return math.inf
    return abs(new - old) / max(abs(new), abs(old))


def must_be_same(run: RunDir, first: int, second: int) -> bool:
    """Whether two attempts train the same bits: same configuration, topology and code."""
    if first == second:
        return True
    jobs = [run.job(number) for number in (first, second)]
    return (
        signature(jobs[0]) == signature(jobs[1])
        and _topology(jobs[0].hardware) == _topology(jobs[1].hardware)
        and _code(run.attempt(first)) == _code(run.attempt(second))
    )


def _topology(hardware: Hardware) -> tuple[object, ...]:
    return (
        hardware.nodes,
        hardware.processes_per_node,
        hardware.threads_per_process,
        hardware.device,
    )


def _code(folder: Path) -> tuple[object, ...]:
    told = read_json(folder / "code.json") or {}
    changes = [file.read_bytes() for file in sorted(folder.glob("code*.diff"))]
    return (*(told.get(key) for key in _CODE), changes)
