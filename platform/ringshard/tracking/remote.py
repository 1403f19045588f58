"""The run as MLflow holds it: one for each run directory, whoever opens it and how often."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ringshard.tracking import names, store
from ringshard.tracking.batches import Point


class RemoteRun:
    """A run in MLflow. Every call may raise what the client raises, and may then be made again."""

    def __init__(self, uri: str, experiment: str, run_dir: Path, run_id: str | None) -> None:
        """Open the run with this id, else that tagged with the directory's key, else a new one."""
        store.ensure(uri, experiment)
        self._client = store.connect(uri)
        self.run_id = run_id if run_id and self._is_there(run_id) else None
        if self.run_id is None:
            home = store.experiment_id(self._client, uri, experiment)
            self.run_id = self._find(home, run_dir) or self._create(home, run_dir)

    def _is_there(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            return bool(self._client.get_run(run_id).info.lifecycle_stage == "active")
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def _find(self, experiment_id: str, run_dir: Path) -> str | None:
        wanted = f"tags.`ringshard.run_key` = '{names.run_key(run_dir)}'"
        found = self._client.search_runs([experiment_id], wanted, max_results=1)
        return str(found[0].info.run_id) if found else None

    def _create(self, experiment_id: str, run_dir: Path) -> str:
        tags = {"mlflow.user": os.environ.get("USER", str(os.getuid())), **names.tags(run_dir)}
        begun = _milliseconds(run_dir / "run.json")
        run = self._client.create_run(experiment_id, begun, tags, run_dir.resolve().name)
        return str(run.info.run_id)

    def reopen(self) -> None:
        """Say that it is running."""
        self._client.update_run(self.run_id, status="RUNNING")

    def describe(self, attempt: int, parameters: Mapping[str, str], files: Iterable[Path]) -> None:
        """Send an attempt's parameters and files.

        A parameter can't change in MLflow: what differs from an earlier attempt becomes a tag.
        """
        from mlflow.entities import Param, RunTag

        known = self._client.get_run(self.run_id).data.params
        new = [Param(key, value) for key, value in parameters.items() if key not in known]
        changed = [
            RunTag(f"ringshard.attempt-{attempt}.{key}", value)
            for key, value in parameters.items()
            if known.get(key, value) != value
        ]
        self._client.log_batch(self.run_id, params=new, tags=changed)
        for file in files:
            self._client.log_artifact(self.run_id, str(file), f"attempts/{attempt}")

    def log(self, points: Iterable[Point], lost: int) -> None:
        """Send points, and the number of lines that can never arrive where there are any."""
        from mlflow.entities import Metric, RunTag

        metrics = [Metric(p.key, p.value, p.time_ms, p.step) for p in points]
        tags = [RunTag("ringshard.incomplete", f"{lost} lines lost")] if lost else []
        self._client.log_batch(self.run_id, metrics=metrics, tags=tags)

    def wait(self, status: str) -> None:
        """Say that it goes on later."""
        self._client.update_run(self.run_id, status=status)

    def end(self, status: str, told_in: Path) -> None:
        """Set the final status, as of the time when the file that tells it was written."""
        self._client.set_terminated(self.run_id, status, _milliseconds(told_in))


def _milliseconds(file: Path) -> int:
    return round(file.stat().st_mtime * 1000)
