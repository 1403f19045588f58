"""A rank's own files in its attempt's folder: its log, its error, the result."""

import os
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import build, read_job
from ringshard.files import write_json
from ringshard.strict import strict

T = TypeVar("T")


@dataclass(frozen=True)
class Attempt:
    """One attempt at a run, as one rank sees it."""

    run_dir: Path
    number: int
    rank: int

    @classmethod
    def of_rank(cls, run_dir: Path, number: int) -> "Attempt":
        """As the rank sees it that the environment names; without one, rank 0."""
        return cls(run_dir, number, int(os.environ.get("RANK", 0)))

    def job(self) -> Job:
        """What it is to do, as it was frozen."""
        return read_job(self.folder / "job.yaml")

    def options(self, kind: type[T], name: str) -> T:
        """The same of what stands beside a job: `name`.yaml, of this dataclass."""
        text = (self.folder / f"{name}.yaml").read_text(encoding="utf-8")
        return cast(T, build(kind, yaml.safe_load(text)))

    @property
    def folder(self) -> Path:
        """Where the files of this attempt lie."""
        return self.run_dir / "attempts" / str(self.number)

    @property
    def log(self) -> Path:
        """What this rank prints."""
        return self.folder / f"rank-{self.rank}.log"

    def redirect(self) -> None:
        """Sends what libraries print to the rank's log; rank 0 keeps the console's stdout."""
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, sys.stderr.fileno())
        if self.rank != 0:
            os.dup2(descriptor, sys.stdout.fileno())

    def record_error(self, error: BaseException) -> None:
        """Leaves the traceback for the agent, which shows the first failing rank's."""
        text = "".join(traceback.format_exception(error))
        print(text, file=sys.stderr, flush=True)
        write_json(
            self.folder / f"error-rank-{self.rank}.json",
            {
                "time": time.time(),
                "rank": self.rank,
                "type": type(error).__name__,
                "message": str(error),
                "traceback": text,
            },
        )

    def record_first_step(self) -> None:
        """Tells the agent that there is something to save (rank 0)."""
        write_json(self.folder / "first-step.json", {"time": time.time()})

    def record_result(self, result: dict[str, Any]) -> None:
        """Leaves what the run came to (rank 0), for any JSON reader."""
        write_json(self.folder / "result.json", strict(result))
