"""How far a run has come, from the end of its newest spool: cheap enough to be asked of many."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ringshard.tracking.spool import last_lines, opened, read_spool

_WANTED = {"train/loss", "perf/tokens_per_s"}


@dataclass(frozen=True)
class Progress:
    """The newest numbers of a run."""

    step: int = 0
    loss: float | None = None
    tokens_per_s: float | None = None


def progress(run_dir: Path) -> Progress:
    """The newest step, its loss and the rate of its interval."""
    spools = list((run_dir / "track").glob("spool-*-rank0.jsonl"))
    if not spools:
        return Progress()
    newest = max(spools, key=lambda file: file.stat().st_mtime)
    step, metrics = 0, dict[str, float]()
    for line in reversed(last_lines(newest)):
        if record := opened(line):
            step, metrics = max(step, record.step), record.metrics | metrics
            if metrics.keys() >= _WANTED:
                break
    return Progress(step, metrics.get("train/loss"), metrics.get("perf/tokens_per_s"))


def last_value(run_dir: Path, metric: str) -> float | None:
    """The newest value of a metric, over all spools."""
    value = None
    for file in sorted((run_dir / "track").glob("spool-*.jsonl"), key=lambda f: f.stat().st_mtime):
        for record, _ in read_spool(file):
            value = record.metrics.get(metric, value) if record else value
    return value


@dataclass
class Follower:
    """Reads a metric as a run records it, each step once."""

    run_dir: Path
    metric: str
    step: int = -1
    """The last step that is known; what earlier attempts recorded again is passed over."""
    _read: dict[Path, int] = field(default_factory=dict)
    """How much of each spool was read [bytes]."""

    def new(self) -> Iterator[tuple[int, float]]:
        """Steps and values since the last call."""
        files = (self.run_dir / "track").glob("spool-*.jsonl")
        for file in sorted(files, key=lambda file: file.stat().st_mtime):
            for record, place in read_spool(file, self._read.get(file, 0)):
                self._read[file] = place
                if record and record.step > self.step and self.metric in record.metrics:
                    self.step = record.step
                    yield record.step, record.metrics[self.metric]
