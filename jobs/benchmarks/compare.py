"""A page that compares runs of 10,000 steps, read from their folders and from MLflow; and a list of
2,000 runs.

Whole commands, as a user gives them; and one metric alone, read as `--uri` does and by MLflow's own
client. MLflow's rows are written to its sqlite file by SQL (its client would take an hour).
"""

import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from report.folders import CREATED, made

from ringshard.report.mlflow_runs import find as find_in_mlflow
from ringshard.report.runs import Run, find
from ringshard.tracking import shipper, store

RUNS, STEPS, LISTED = 50, 10_000, 2_000
METRIC = "train/loss"


def run() -> list[dict[str, Any]]:
    """Seconds and CPU seconds of each command."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for place in range(RUNS):
            fields = {"optimizer__lr": 1e-3 * (1 + place // 5), "train__seed": place % 5}
            made(home / "all", f"run-{place:02}", CREATED + place, steps=STEPS, **fields)
        for place in range(LISTED):
            made(home / "many", f"run-{place:04}", CREATED + place, steps=100)
        uri = f"sqlite:///{home / 'mlflow.db'}"
        _ship(home, uri)
        page = ("--html", str(home / "page.html"))
        return [
            _time(f"compare {RUNS} runs × {STEPS:,} steps", "compare", str(home / "all"), *page),
            _time("the same from MLflow's file", "compare", "--uri", uri, "bench", *page),
            *_reading(uri),
            _time(f"list {LISTED:,} runs", "runs", "list", str(home / "many")),
        ]


def _time(what: str, *command: str) -> dict[str, Any]:
    words = [sys.executable, "-m", "ringshard.cli", *command]
    took = partial(subprocess.run, words, check=True, stdout=subprocess.DEVNULL)
    return _row(what, took, resource.RUSAGE_CHILDREN)


def _reading(uri: str) -> Iterator[dict[str, Any]]:
    """One metric of all runs, in two ways that must agree."""
    client, runs = store.connect(uri), find_in_mlflow(uri, ["bench"])
    assert len(runs) == RUNS
    own = partial(runs[0].points.curve, runs[0].place, METRIC)
    yield _row(f"{METRIC} of all these, from the file", own)
    told: list[Any] = []
    ask = partial(client.get_metric_history, key=METRIC)
    yield _row("the same by MLflow's client", lambda: told.extend(ask(run.place) for run in runs))
    for run, points in zip(runs, told, strict=True):
        assert [p.value for p in points] == run.curves[METRIC].values.tolist()


def _row(what: str, action: Callable[[], Any], whose: int = resource.RUSAGE_SELF) -> dict[str, Any]:
    before, started = resource.getrusage(whose), time.perf_counter()
    action()
    seconds, after = time.perf_counter() - started, resource.getrusage(whose)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"command": what, "seconds": round(seconds, 1), "cpu_s": round(cpu, 1)}


def _ship(home: Path, uri: str) -> None:
    """Runs without their points by the shipper, and then the points."""
    stubs = home / "stubs"
    for one in find([home / "all"]):
        path = stubs / one.name
        path.mkdir(parents=True)
        for name in ("run.json", "attempts", "DONE"):
            (path / name).symlink_to(one.dir.path / name)
        (path / "track").mkdir()
        shipper.sync(path, 1, uri, "bench")
    with closing(sqlite3.connect(home / "mlflow.db")) as database:
        for one in find([home / "all"]):
            told = json.loads((stubs / one.name / "track/shipped.json").read_text("utf-8"))
            rows = list(_rows(one, told["run_id"]))
            database.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, 0)", rows)
            latest = {key: (key, v, t, step, run_id) for key, v, t, run_id, step in rows}
            database.executemany(
                "INSERT INTO latest_metrics (key, value, timestamp, step, run_uuid, is_nan)"
                " VALUES (?, ?, ?, ?, ?, 0)",
                latest.values(),
            )
        database.commit()


def _rows(one: Run, run_id: str) -> Iterator[tuple[str, float, int, str, int]]:
    for key, curve in one.curves.items():
        for step, when, value in zip(curve.steps, curve.times, curve.values, strict=True):
            yield key, float(value), round(1000 * when), run_id, int(step)
