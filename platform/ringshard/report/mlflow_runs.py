"""Runs as MLflow tells them, where their directories are out of reach."""

import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ringshard.errors import ConfigError
from ringshard.report.curve import Curve, Floats
from ringshard.report.goodput import PARTS, Goodput
from ringshard.report.mlflow_points import Points
from ringshard.report.runs import LOADER, flat
from ringshard.tracking import store
from ringshard.tracking.batches import ATTEMPT

_STATES = {
    "FINISHED": "done",
    "FAILED": "failed",
    "KILLED": "killed",
    "RUNNING": "running",
    "SCHEDULED": "pending",
}
_PAGE = 1000
_MOST_NAMES = 8
"""Experiments that an error lists."""


@dataclass(frozen=True)
class _History(Mapping[str, Curve]):
    """The metrics of a run, each asked for when it is looked at."""

    points: Points
    run: Any

    def __getitem__(self, key: str) -> Curve:
        if key not in self:
            raise KeyError(key)
        return self.points.curve(self.run.info.run_id, key)

    def __contains__(self, key: object) -> bool:
        return key in self.run.data.metrics

    def __iter__(self) -> Iterator[str]:
        return iter(self.run.data.metrics)

    def __len__(self) -> int:
        return len(self.run.data.metrics)


@dataclass(frozen=True)
class RemoteRun:
    """One run of MLflow, read when asked."""

    client: Any
    run: Any
    points: Points

    @property
    def name(self) -> str:
        """As MLflow shows it: the name of the run's folder."""
        return str(self.run.info.run_name)

    @property
    def place(self) -> str:
        """Its id."""
        return str(self.run.info.run_id)

    @property
    def state(self) -> str:
        """Where it stands, perhaps diverged, perhaps with an incomplete record."""
        told = _STATES.get(self.run.info.status, str(self.run.info.status).lower())
        norm = self.run.data.metrics.get("train/grad_norm", 0.0)
        told = told if math.isfinite(norm) else f"{told}, diverged"
        return f"{told}, incomplete" if "ringshard.incomplete" in self.run.data.tags else told

    @cached_property
    def config(self) -> Mapping[str, object]:
        """The newest attempt's job, or where it is not there the parameters."""
        return self._job or dict(self.run.data.params)

    @cached_property
    def _job(self) -> dict[str, object]:
        from mlflow.exceptions import MlflowException

        try:
            files = self.client.list_artifacts(self.place, "attempts")
            newest = max((int(Path(file.path).name) for file in files), default=0)
            with tempfile.TemporaryDirectory() as folder:
                path = f"attempts/{newest}/job.yaml"
                text = Path(self.client.download_artifacts(self.place, path, folder)).read_text()
                return flat(yaml.load(text, LOADER))
        except (MlflowException, OSError, ValueError, AttributeError, yaml.YAMLError):
            return {}

    code = ""

    @cached_property
    def curves(self) -> Mapping[str, Curve]:
        """Every metric."""
        return _History(self.points, self.run)

    @property
    def newest(self) -> Sequence[Mapping[str, Curve]]:
        """What each start of the ranks of its newest attempt has recorded."""
        told = self.curves.get(ATTEMPT)
        if told is None:
            return []
        newest = float(self.run.data.tags["ringshard.attempt"])
        begins = np.sort(told.times[told.values == newest])
        return [self._between(*span) for span in pairwise([*begins.tolist(), math.inf])]

    def _between(self, begin: float, end: float) -> dict[str, Curve]:
        kept: dict[str, Curve] = {}
        for key in ("perf/tokens_per_s", "perf/mfu", "train/tokens"):
            if key in self.curves:
                curve = self.curves[key]
                places = np.flatnonzero((curve.times >= begin) & (curve.times < end))
                kept |= {key: curve.of(places)} if len(places) else {}
        return kept

    @property
    def faults(self) -> list[str]:
        """What MLflow lacks of it, in words."""
        lost = self.run.data.tags.get("ringshard.incomplete")
        about = "its job is not in MLflow: of its configuration only the parameters are known"
        return [lost] * bool(lost) + [about] * (not self._job)

    @property
    def goodput(self) -> Goodput | None:
        """Where its wall time went, as of the end of its last attempt."""
        return goodput_of(self.run)

    @property
    def bigram_entropy(self) -> float | None:
        """Not in MLflow."""
        return None

    def worked(self, times: Floats) -> Floats:
        """Seconds since it was created: when it did not work MLflow does not tell."""
        since: Floats = times - float(self.run.info.start_time) / 1000
        return since


def goodput_of(run: Any) -> Goodput | None:
    """Where the wall time of a run of MLflow went; None where nothing tells."""
    told = run.data.metrics
    parts = {part: told.get(f"goodput/{part}_s") for part in PARTS}
    if any(seconds is None for seconds in parts.values()):
        return None
    return Goodput({part: round(1000 * float(s or 0)) for part, s in parts.items()})


def find(uri: str, names: Sequence[str]) -> list[RemoteRun]:
    """The runs of experiments, of sweeps, or with these names or ids, oldest first.

    Raises ConfigError where MLflow does not answer or does not know one.
    """
    store.check(uri)
    if uri.startswith("sqlite:") and not store.sqlite_path(uri).exists():
        raise ConfigError(f"--uri {uri}: there is no such file, give the mlflow.db of your runs")
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    with store.told_in_a_sentence(f"--uri {uri} does not answer", "is it the right one?"):
        client = store.connect(uri)
        homes = {home.name: home.experiment_id for home in _pages(client.search_experiments)}
        found = {run.info.run_id: run for name in names for run in _named(client, homes, name)}
    runs = sorted(found.values(), key=lambda run: int(run.info.start_time))
    points = Points(client, uri, {run.info.run_id: run.data.metrics.keys() for run in runs})
    return [RemoteRun(client, run, points) for run in runs]


_IS_OURS = "tags.`ringshard.run_key` LIKE '%'"
"""Of a run folder: neither the parent of a sweep nor a run of another program."""


def _named(client: Any, homes: Mapping[str, str], name: str) -> list[Any]:
    if name in homes:
        return search(client, [homes[name]], _IS_OURS)
    quoted = name.replace("'", "")
    for where in (
        f"tags.`ringshard.sweep` = '{quoted}'",
        f"attributes.run_name = '{quoted}'",
        f"attributes.run_id = '{quoted}'",
    ):
        if found := search(client, list(homes.values()), f"{where} AND {_IS_OURS}"):
            return found
    known = ", ".join([*homes][:_MOST_NAMES])
    raise ConfigError(
        f"MLflow knows no experiment, sweep or run {name}: its experiments are {known}"
    )


def search(client: Any, homes: list[str], where: str) -> list[Any]:
    """All runs of these experiments for which it holds."""
    return _pages(lambda **page: client.search_runs(homes, where, **page))


def _pages(ask: Any) -> list[Any]:
    found: list[Any] = []
    token = None
    while True:
        page = ask(max_results=_PAGE, page_token=token)
        found += page
        token = page.token
        if not token:
            return found
