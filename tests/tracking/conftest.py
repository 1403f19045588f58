"""Run directories as the launcher makes them, and one MLflow database for all tests."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import plain
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.tracking import store
from ringshard.tracking.spool import Spool


class RunFolder:
    """A run directory that a test fills, as its agent would."""

    def __init__(self, path: Path, uri: str, sweep: str | None = None) -> None:
        self.path, self.job = path, Job()
        self._claim = FileLock(path / "lock", timeout=0)
        self.job.tracking.uri = uri
        self.job.optimizer.name = "adamw"
        path.mkdir(parents=True)
        about = {
            "name": "tiny",
            "signature": "0" * 12,
            "sweep": sweep,
            "created": 1767323040.0,
        }
        (path / "run.json").write_text(json.dumps(about))

    @classmethod
    def of(cls, path: Path, uri: str, experiment: str) -> "RunFolder":
        """One that a real command has made."""
        found = cls.__new__(cls)
        found.path, found.job = path, Job()
        found.job.tracking.uri, found.job.tracking.experiment = uri, experiment
        return found

    def attempt(self, number: int, *overrides: str) -> Path:
        self._claim.acquire()
        folder = self.path / "attempts" / str(number)
        folder.mkdir(parents=True)
        (folder / "job.yaml").write_text(yaml.safe_dump(plain(self.job)))
        (folder / "started.json").write_text(json.dumps({"time": 1767323040.0, "step": 0}))
        (folder / "overrides.json").write_text(json.dumps(overrides or ["optimizer.lr=0.001"]))
        return folder

    def submit(self, attempt: int, job_id: str) -> None:
        """What sbatch leaves of an attempt."""
        submission = self.path.parent / f"submission-{job_id}"
        submission.mkdir()
        (submission / "submission.json").write_text(json.dumps({"job_id": job_id}))
        told = {"submission": str(submission), "index": None}
        (self.path / "attempts" / str(attempt) / "submitted.json").write_text(json.dumps(told))

    def train(self, attempt: int, steps: range, factor: float = 1.0) -> None:
        spool = Spool(self.path, attempt)
        for step in steps:
            spool.log(step, {"train/loss": factor / (step + 1), "train/lr": 1e-3})
        spool.close()

    def end(self, attempt: int, outcome: str, **why: str) -> None:
        RunDir(self.path).finish(attempt, Outcome[outcome], {"rc": 0, "time": 1767323100.0, **why})
        self.die()

    def die(self) -> None:
        """What `kill -9` does to the agent."""
        self._claim.release()


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    store.ensure(f"sqlite:///{path}", "ringshard")
    return path


@pytest.fixture
def run(tmp_path: Path, database: Path) -> RunFolder:
    """A run whose tracking database holds an empty experiment."""
    shutil.copy(database, tmp_path / "mlflow.db")
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as own, own:
        files = str(tmp_path / "mlartifacts")
        own.execute(
            "UPDATE experiments SET artifact_location = ? WHERE name = 'ringshard'", [files]
        )
    return RunFolder(tmp_path / "runs" / "tiny-1", f"sqlite:///{tmp_path / 'mlflow.db'}")


@pytest.fixture
def run_at(tmp_path: Path) -> Callable[[str], RunFolder]:
    """A run tracked at a given address."""
    return lambda uri: RunFolder(tmp_path / "runs" / "tiny-1", uri)
