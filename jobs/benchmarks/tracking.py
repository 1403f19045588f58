"""What logging costs the training process: our spool against MLflow's own calls, in one run; and
how fast a spool is shipped."""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import plain
from ringshard.tracking import shipper, store
from ringshard.tracking.spool import Spool

METRICS = {f"perf/metric_{place}": 1 / (place + 3) for place in range(12)}
_SHIPPED = 2000
"""Lines of the spool that is shipped."""


def run() -> list[dict[str, Any]]:
    """Microseconds for one call with 12 metrics (median and 99th percentile), with a database of
    its own each; points a second that reach one."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [_spool(Path(folder)), *_mlflow(Path(folder))]
        return [*(row | _beside(row, rows[0]) for row in rows), _ship(Path(folder))]


def _beside(row: dict[str, Any], ours: dict[str, Any]) -> dict[str, float]:
    rate = 1e6 * len(METRICS) / row["median_us"]
    return {"over_spool": row["median_us"] / ours["median_us"], "points_per_s": rate}


def _spool(folder: Path) -> dict[str, Any]:
    spool = Spool(folder, attempt=1)
    return {"call": "Spool.log"} | _time(lambda step: spool.log(step, METRICS), calls=5000)


def _mlflow(folder: Path) -> list[dict[str, Any]]:
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    store.ensure(uri, "bench")
    import mlflow

    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("bench")

    def log(step: int) -> object:
        return mlflow.log_metrics(METRICS, step=step)

    def log_later(step: int) -> object:
        return mlflow.log_metrics(METRICS, step=step, synchronous=False)

    rows = []
    for name, call in (("log_metrics", log), ("log_metrics(synchronous=False)", log_later)):
        with mlflow.start_run():  # its end waits for what is under way
            rows.append({"call": f"mlflow.{name}"} | _time(call, calls=40))
    return rows


def _ship(folder: Path) -> dict[str, Any]:
    """A whole run to a database of its own, the opening of the run included."""
    uri, run = f"sqlite:///{folder / 'ship.db'}", folder / "run"
    store.ensure(uri, "bench")
    attempt = run / "attempts" / "1"
    attempt.mkdir(parents=True)
    about = {"name": "run", "signature": "0", "sweep": None, "created": 0.0}
    (run / "run.json").write_text(json.dumps(about))
    job = Job()
    (attempt / "job.yaml").write_text(yaml.safe_dump(plain(job)))
    (attempt / "overrides.json").write_text("[]")
    spool = Spool(run, 1)
    for step in range(_SHIPPED):
        spool.log(step, METRICS)
    spool.close()
    begun = time.perf_counter()
    shipper.sync(run, 1, uri, "bench")
    seconds = time.perf_counter() - begun
    rate = _SHIPPED * len(METRICS) / seconds
    return {
        "call": "shipped",
        "median_us": "",
        "p99_us": "",
        "over_spool": "",
        "points_per_s": rate,
    }


def _time(log: Callable[[int], object], calls: int) -> dict[str, float]:
    took = []
    for step in range(calls):
        begun = time.perf_counter()
        log(step)
        took.append(1e6 * (time.perf_counter() - begun))
    took.sort()
    return {"median_us": round(took[calls // 2], 1), "p99_us": round(took[calls * 99 // 100], 1)}
