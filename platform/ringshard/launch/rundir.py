"""The folder of a run: attempts, state, and who is at work in it. It is the truth about the run."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ringshard.config.schema.data import Data
from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import read_job
from ringshard.errors import ConfigError
from ringshard.files import read_json, write_json, write_whole


class Outcome(Enum):
    """How an attempt ended; the value is the marker file at the top of the run directory."""

    done = "DONE"
    killed = "KILLED"
    failed = "FAILED"
    requeued = "REQUEUED"


class RunningError(ConfigError):
    """Another process is at work in the run."""


@dataclass(frozen=True)
class RunDir:
    """A run directory that exists or will."""

    path: Path

    @property
    def record(self) -> Path:
        """run.json: a folder that has it is a run, with one attempt at least."""
        return self.path / "run.json"

    def attempt(self, number: int) -> Path:
        """The folder of an attempt, counted from 1."""
        return self.path / "attempts" / str(number)

    def last_attempt(self) -> int:
        """Number of the newest attempt; 0: there was none."""
        folder = self.path / "attempts"
        numbers = [int(entry.name) for entry in folder.glob("*") if entry.name.isdigit()]
        return max(numbers, default=0)

    def outcome(self) -> Outcome | None:
        """How the last attempt ended; None while it runs, or if its agent was killed."""
        return next((o for o in Outcome if (self.path / o.value).exists()), None)

    def job(self, attempt: int) -> Job:
        """The frozen job of an attempt; raises ConfigError where this version can't read it."""
        file = self.attempt(attempt) / "job.yaml"
        try:
            return read_job(file)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{file} is not a job of this version ({error}): start a new run"
            ) from error

    def frozen_data(self) -> Data | None:
        """The data that the newest attempt was frozen with; None: there was no attempt."""
        attempt = self.last_attempt()
        return self.job(attempt).data if attempt else None

    def result(self, attempt: int) -> dict[str, Any]:
        """What rank 0 wrote at the end of an attempt; empty if it did not get there."""
        return read_json(self.attempt(attempt) / "result.json") or {}

    def newest_step(self) -> int:
        """Steps of the newest checkpoint; 0: there is none."""
        folders = (self.path / "checkpoints").glob("step-*")
        steps = [int(f.name[5:]) for f in folders if (f / ".metadata").is_file()]
        return max(steps, default=0)

    def finish(self, attempt: int, outcome: Outcome, details: dict[str, Any]) -> None:
        """Writes exit.json, then the marker."""
        write_json(self.attempt(attempt) / "exit.json", {"outcome": outcome.name, **details})
        self.clear_markers()
        write_whole(self.path / outcome.value, f"attempt {attempt}\n")

    def discard_attempt(self, whole: bool) -> None:
        """Takes back the newest attempt, which nobody has begun; whole: the run was new as well."""
        shutil.rmtree(self.path if whole else self.attempt(self.last_attempt()))

    def clear_markers(self) -> None:
        """Takes away what an earlier attempt said about the run."""
        for outcome in Outcome:
            (self.path / outcome.value).unlink(missing_ok=True)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Holds the run for this process; the kernel lets go when it ends, however it ends.

        Raises RunningError where another process is at work in it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.path / "lock", timeout=0):
                yield
        except Timeout:
            raise RunningError(f"{self.path} is running: wait for its end, or stop it") from None

    def is_running(self) -> bool:
        """Whether a live process holds the run."""
        if not (self.path / "lock").exists():
            return False
        try:
            with FileLock(self.path / "lock", timeout=0):
                return False
        except Timeout:
            return True
