"""What logging costs the training process: our spool against MLflow's own call, in one run."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringshard.tracking import store
from ringshard.tracking.spool import Spool

METRICS = {f"perf/metric_{place}": 1 / (place + 3) for place in range(12)}


def run() -> list[dict[str, Any]]:
    """Microseconds for one call with 12 metrics: median and 99th percentile."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [_spool(Path(folder)), _mlflow(Path(folder))]
    return [row | {"over_spool": round(row["median_us"] / rows[0]["median_us"])} for row in rows]


def _spool(folder: Path) -> dict[str, Any]:
    spool = Spool(folder, attempt=1)
    return {"call": "Spool.log"} | _time(lambda step: spool.log(step, METRICS), calls=5000)


def _mlflow(folder: Path) -> dict[str, Any]:
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    store.ensure(uri, "bench")
    import mlflow

    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("bench")
    with mlflow.start_run():
        times = _time(lambda step: mlflow.log_metrics(METRICS, step=step), calls=40)
    return {"call": "mlflow.log_metrics"} | times


def _time(log: Callable[[int], object], calls: int) -> dict[str, float]:
    took = []
    for step in range(calls):
        begun = time.perf_counter()
        log(step)
        took.append(1e6 * (time.perf_counter() - begun))
    took.sort()
    return {"median_us": round(took[calls // 2], 1), "p99_us": round(took[calls * 99 // 100], 1)}
