"""What a trainer tells its metrics to: the three backends of tracking behind one protocol.

For a rank mlflow and jsonl are the same, a spool: whether it `ships` is the business of its agent.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ringshard.config.schema.tracking import Backend
from ringshard.tracking.spool import Spool


class Sink(Protocol):
    """Takes metrics; never raises, and never waits for anybody."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of a step."""

    def sync(self) -> None:
        """Bring to the disk what was logged."""

    def close(self) -> None:
        """Record no more."""


class Unrecorded:
    """Of tracking=none, and of all ranks but the first."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Nothing."""

    def sync(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def sink(backend: Backend, run_dir: Path, attempt: int) -> Sink:
    """For the first rank; ranks that were started again in place write a file of their own."""
    if not backend.records:
        return Unrecorded()
    earlier = (run_dir / "track").glob(f"spool-{attempt}.*-rank0.jsonl")
    return Spool(run_dir, attempt, "rank0", restart=len(list(earlier)))
