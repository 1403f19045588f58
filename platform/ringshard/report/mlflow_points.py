"""Points in MLflow: a metric that is looked at in one run is looked at in those beside it, so it is
read of all of them at once."""

import os
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from ringshard.report.curve import Curve
from ringshard.tracking import store

_AT_ONCE = 4
"""Requests that a server is sent together."""
_PATIENCE_S = "120"
"""How long it may take to answer one: ten thousand points take it seconds."""
_OF_ONE = """
SELECT step, timestamp, CASE WHEN is_nan THEN NULL ELSE value END FROM metrics
WHERE run_uuid = ? AND key = ? ORDER BY step, timestamp, value
"""
Rows = Sequence[tuple[int, int, float | None]]
"""Step, time [ms], value (None: NaN) of points by step."""


class Points:
    """The metrics of some runs, each read when it is looked at first."""

    def __init__(self, client: Any, uri: str, metrics: Mapping[str, Collection[str]]) -> None:
        """metrics: what each run has recorded, by its id."""
        self._client, self._metrics = client, metrics
        self._file = store.sqlite_path(uri) if uri.startswith("sqlite:") else None
        self._curves: dict[tuple[str, str], Curve] = {}

    def curve(self, run_id: str, key: str) -> Curve:
        """A metric that the run has recorded."""
        if (run_id, key) not in self._curves:
            runs = [run for run, keys in self._metrics.items() if key in keys]
            for run, rows in zip(runs, self._read(runs, key), strict=True):
                self._curves[run, key] = _curve(rows)
        return self._curves[run_id, key]

    def _read(self, runs: Sequence[str], key: str) -> Iterable[Rows]:
        if self._file:
            try:
                return _from_file(self._file, runs, key)
            except sqlite3.Error:  # another version's tables, or at work: MLflow knows better
                pass
        os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = _PATIENCE_S
        with (
            store.told_in_a_sentence(f"MLflow gives no points of {key}", "try later"),
            ThreadPoolExecutor(_AT_ONCE) as pool,
        ):
            return list(pool.map(partial(self._ask, key), runs))

    def _ask(self, key: str, run_id: str) -> Rows:
        points = self._client.get_metric_history(run_id, key)
        return sorted((point.step, point.timestamp, point.value) for point in points)


def _from_file(file: Path, runs: Iterable[str], key: str) -> list[Rows]:
    """Without MLflow, which makes three objects of each point."""
    address = f"file:{quote(str(file))}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as database:
        return [database.execute(_OF_ONE, (run, key)).fetchall() for run in runs]


def _curve(rows: Rows) -> Curve:
    steps, times, values = zip(*rows, strict=True)
    times_ms = np.array(times, np.float64)
    return Curve(np.array(steps, np.int64), times_ms / 1000, np.array(values, np.float64))
