"""The folder of a run: attempts, state, and who is at work in it. It is the truth about the run."""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, cast

from filelock import FileLock, Timeout
from yaml import YAMLError

from ringshard.checkpoint.directory import committed
from ringshard.config.schema.data import Data
from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import build, read_job
from ringshard.errors import ConfigError
from ringshard.files import is_listed, read_json, write_json, write_whole
from ringshard.strict import restored

T = TypeVar("T")
_PATIENCE_S = 0.5


class Outcome(Enum):
    """How an attempt ended; the value is the marker file at the top of the run directory."""

    done = "DONE"
    killed = "KILLED"
    failed = "FAILED"
    requeued = "REQUEUED"


@dataclass(frozen=True)
class Record:
    """run.json: how a run came to be."""

    name: str
    signature: str
    sweep: str | None
    created: float
    """When it was started first [s since 1970]."""
    config_name: str
    """The primary config."""
    options: list[str]
    """Hydra's options."""
    overrides: list[str]
    """Those of the first attempt."""


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
        """How the last attempt ended; None while it runs, or if its agent was killed.

        exit.json tells it a moment before the marker, which takes no reading.
        """
        names = {entry.name for entry in self.path.iterdir()} if self.path.is_dir() else set()
        marked = next((outcome for outcome in Outcome if outcome.value in names), None)
        return marked or self._told()

    def _told(self) -> Outcome | None:
        file = self.attempt(self.last_attempt()) / "exit.json"
        end = read_json(file) if is_listed(file) else None
        return Outcome[end["outcome"]] if end else None

    def job(self, attempt: int) -> Job:
        """The frozen job of an attempt; raises ConfigError where this version can't read it."""
        return _read(self.attempt(attempt) / "job.yaml", read_job)

    def overrides(self, attempt: int) -> list[str]:
        """What the command line of an attempt named; raises ConfigError as `job` does."""
        return _read(self.attempt(attempt) / "overrides.json", _strings)

    def about(self) -> Record:
        """What run.json tells; raises ConfigError as `job` does."""
        return _read(self.record, _record)

    def frozen_data(self) -> Data | None:
        """The data that the newest attempt was frozen with; None: there was no attempt."""
        attempt = self.last_attempt()
        return self.job(attempt).data if attempt else None

    def result(self, attempt: int) -> dict[str, Any]:
        """What rank 0 wrote at the end of an attempt; empty if it did not get there."""
        return restored(read_json(self.attempt(attempt) / "result.json") or {})

    def told(self, outcome: str) -> str:
        """An outcome in words: a run whose last updates were all skipped has diverged."""
        diverged = self.result(self.last_attempt()).get("skipped_at_end")
        return f"{outcome}, diverged" if diverged else outcome

    def newest_step(self) -> int:
        """Steps of the newest checkpoint; 0: there is none."""
        return max(committed(self.path / "checkpoints"), default=0)

    def finish(self, attempt: int, outcome: Outcome, details: dict[str, Any]) -> None:
        """Writes exit.json, then the marker."""
        write_json(self.attempt(attempt) / "exit.json", {"outcome": outcome.name, **details})
        self.clear_markers()
        write_whole(self.path / outcome.value, f"attempt {attempt}\n")

    def ask_to_stop(self, why: str | None) -> None:
        """Notes for the agent of the newest attempt why it is going to be stopped; None: it is
        not."""
        note = self.attempt(self.last_attempt()) / "stop.json"
        if why is None:
            note.unlink(missing_ok=True)
        else:
            write_json(note, {"why": why})

    def why_stopped(self, attempt: int) -> str | None:
        """What was noted so."""
        return (read_json(self.attempt(attempt) / "stop.json") or {}).get("why")

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
            # Not at once: `is_running` holds the lock for a moment.
            with FileLock(self.path / "lock", timeout=_PATIENCE_S, poll_interval=0.02):
                yield
        except Timeout:
            raise RunningError(f"{self.path} is running: wait for its end, or stop it") from None

    def is_anothers(self) -> bool:
        """Whether another user began it, whose jobs the queue does not tell."""
        return self.record.exists() and self.record.stat().st_uid != os.getuid()

    def is_running(self) -> bool:
        """Whether a live process holds the run; raises ConfigError where no file can be locked."""
        try:
            with (self.path / "lock").open("rb") as file:
                # Shared: any number may ask at once.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            raise ConfigError(
                f"{self.path} lies on a file system without locks ({error.strerror}), and who is at"
                " work there can't be told: mount it with flock, or set output.root elsewhere"
            ) from error
        return False


def _read(file: Path, read: Callable[[Path], T]) -> T:
    try:
        if (found := read(file)) is None:
            raise TypeError("it is empty")
        return found
    except (OSError, KeyError, TypeError, ValueError, AttributeError, YAMLError) as error:
        raise ConfigError(
            f"{file} is not of this version, or damaged ({error}): start a new run"
        ) from error


def _record(file: Path) -> Record:
    return cast(Record, build(Record, json.loads(file.read_text("utf-8"))))


def _strings(file: Path) -> list[str]:
    return [str(text) for text in json.loads(file.read_text("utf-8"))]
