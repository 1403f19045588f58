"""A page that compares runs of 10,000 steps, read from their folders and from MLflow; and a list of
2,000 runs.

Whole commands, as a user gives them. MLflow's rows are written to its sqlite file by SQL (its
client would take an hour), of five runs only, for it takes seconds to read each.
"""

import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from report.folders import CREATED, made

from ringshard.report.runs import Run, find
from ringshard.tracking import shipper

RUNS, SHIPPED, STEPS, LISTED = 50, 5, 10_000, 2_000


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
        few = [str(run.dir.path) for run in find([home / "all"])[:SHIPPED]]
        _ship(home, uri)
        page = ("--html", str(home / "page.html"))
        return [
            _time(f"compare {SHIPPED} runs × {STEPS:,} steps", "compare", *few, *page),
            _time("the same from MLflow", "compare", "--uri", uri, "bench", *page),
            _time(f"compare {RUNS} runs × {STEPS:,} steps", "compare", str(home / "all"), *page),
            _time(f"list {LISTED:,} runs", "runs", "list", str(home / "many")),
        ]


def _time(what: str, *command: str) -> dict[str, Any]:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    words = [sys.executable, "-m", "ringshard.cli", *command]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"command": what, "seconds": round(seconds, 1), "cpu_s": round(cpu, 1)}


def _ship(home: Path, uri: str) -> None:
    """Runs without their points by the shipper, and then the points."""
    stubs = home / "stubs"
    for one in find([home / "all"])[:SHIPPED]:
        path = stubs / one.name
        path.mkdir(parents=True)
        for name in ("run.json", "attempts", "DONE"):
            (path / name).symlink_to(one.dir.path / name)
        (path / "track").mkdir()
        shipper.sync(path, 1, uri, "bench")
    with closing(sqlite3.connect(home / "mlflow.db")) as database:
        for one in find([home / "all"])[:SHIPPED]:
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
