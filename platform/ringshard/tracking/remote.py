"""The run as MLflow holds it: one for each run directory, whoever opens it and how often."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ringshard.launch.state import Queue
from ringshard.tracking import names, store
from ringshard.tracking import sweep as sweeps
from ringshard.tracking.batches import Point
from ringshard.tracking.models import Model

_LONGEST = 5000
"""Characters that every store takes of a tag."""


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
        user = os.environ.get("USER", str(os.getuid()))
        tags = {"mlflow.user": user, **names.tags(run_dir)}
        if sweep := names.sweep(run_dir):
            tags["mlflow.parentRunId"] = sweeps.parent(self._client, experiment_id, sweep, user)
        begun = round(names.created(run_dir) * 1000)
        run = self._client.create_run(experiment_id, begun, tags, run_dir.resolve().name)
        return str(run.info.run_id)

    def describe(
        self, attempt: int, parameters: Mapping[str, str], tags: Mapping[str, str]
    ) -> None:
        """Send an attempt's parameters and tags.

        A parameter can't change in MLflow: what differs from an earlier attempt becomes a tag.
        """
        from mlflow.entities import Param

        known = self._client.get_run(self.run_id).data.params
        new = [Param(key, value) for key, value in parameters.items() if key not in known]
        changed = {
            f"attempt-{attempt}.{key}": value
            for key, value in parameters.items()
            if known.get(key, value) != value
        }
        self._client.log_batch(self.run_id, params=new, tags=_tags({**tags, **changed}))

    def attach(self, name: str, text: str) -> None:
        """Keep a text as a file of the run; a file of this name is replaced."""
        self._client.log_text(self.run_id, text, name)

    def log(self, points: Iterable[Point], tags: Mapping[str, str]) -> None:
        """Send points, and tags with them."""
        from mlflow.entities import Metric

        metrics = [Metric(p.key, p.value, p.time_ms, p.step) for p in points]
        self._client.log_batch(self.run_id, metrics=metrics, tags=_tags(tags))

    def add_model(self, model: Model) -> str:
        """Tell of a model whose bytes lie elsewhere, once; its id."""
        from mlflow.entities import LoggedModelStatus, Metric

        home = self._client.get_run(self.run_id).info.experiment_id
        same = f"source_run_id = '{self.run_id}' AND name = '{model.name}'"
        found = self._client.search_logged_models([home], same)
        tags = {f"ringshard.{key}": value for key, value in model.tags.items()}
        made = (
            found[0]
            if found
            else self._client.create_logged_model(
                home, model.name, self.run_id, {"mlflow.model.isExternal": "true", **tags}
            )
        )
        self._client.finalize_logged_model(made.model_id, LoggedModelStatus.READY)
        points = [
            Metric(p.key, p.value, p.time_ms, p.step, model_id=made.model_id) for p in model.points
        ]
        self._client.log_batch(self.run_id, metrics=points)
        return str(made.model_id)

    def remove_model(self, model_id: str) -> None:
        """Take back a model whose bytes are gone."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.delete_logged_model(model_id)
        except MlflowException as error:  # somebody else has
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise

    def tell(self, status: str, tags: Mapping[str, str], ended: float | None = None) -> None:
        """Set the status, with tags that say more of it; ended: since when it is final [s]."""
        self._client.log_batch(self.run_id, tags=_tags(tags))
        if ended is None:
            self._client.update_run(self.run_id, status=status)
        else:
            self._client.set_terminated(self.run_id, status, round(ended * 1000))

    def tell_parent(self, sweep: Path, queue: Callable[[], Queue]) -> None:
        """Set the status of the sweep in MLflow, where there is one."""
        if parent := self._client.get_run(self.run_id).data.tags.get("mlflow.parentRunId"):
            sweeps.tell(self._client, parent, sweep, queue)

    def status(self) -> str:
        """The status that MLflow has."""
        return str(self._client.get_run(self.run_id).info.status)


def _tags(tags: Mapping[str, str]) -> list[Any]:
    from mlflow.entities import RunTag

    return [RunTag(f"ringshard.{key}", value[:_LONGEST]) for key, value in tags.items()]
