"""Run folders as the launcher and the ranks leave them."""

import json
import shutil
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import plain
from ringshard.tracking.spool import Spool

CREATED = 1_700_000_000.0


def made(
    root: Path,
    name: str,
    created: float = CREATED,
    marker: str | None = "DONE",
    steps: int = 20,
    wiggle: float = 0.0,
    **fields: Any,
) -> Path:
    """A run below root/runs that trained a second a step, with these fields of its job (a__b)."""
    path = root / "runs" / name
    folder = path / "attempts" / "1"
    folder.mkdir(parents=True)
    about = {"name": "tiny", "created": created, "signature": "0" * 12, "sweep": None}
    (path / "run.json").write_text(json.dumps(about))
    job = Job()
    job.output.root, job.model.config = str(root), {"hidden_size": 64}
    for key, value in fields.items():
        group, _, field = key.partition("__")
        setattr(getattr(job, group), field, value)
    (folder / "job.yaml").write_text(yaml.safe_dump(plain(job)))
    (folder / "overrides.json").write_text("[]")
    if marker != "FAILED":
        (folder / "result.json").write_text(json.dumps({"bigram_entropy": 2.1}))
    (folder / "started.json").write_text(json.dumps({"time": created, "host": "h", "pid": 1}))
    train(path, created + 5, job.optimizer.lr, range(1, steps + 1), wiggle)
    if marker:
        end = {"outcome": marker.lower(), "time": created + 5 + steps + 1, "rc": 0}
        (folder / "exit.json").write_text(json.dumps(end))
        (path / marker).touch()
    return path


def train(path: Path, begin: float, lr: float, steps: range, wiggle: float = 0.0) -> None:
    """One attempt's metrics: a point a step, and each tenth a report and an evaluation."""
    spool = Spool(path, 1)
    for step in steps:
        loss = 5 / (1 + lr * step) + wiggle
        metrics = {"train/loss": loss, "train/grad_norm": 1.0, "train/lr": lr}
        metrics |= {"train/tokens": 512.0 * step, "train/flops": 1e9 * step}
        if step % 10 == 0:
            metrics |= {"perf/tokens_per_s": 512.0, "perf/mfu": 0.25}
            metrics |= {"perf/step_s": 1.0, "perf/data_wait": 0.1}
        with patch.object(time, "time", lambda at=begin + step: at):
            spool.log(step, metrics)
            if step % 10 == 0:
                spool.log(step, {"val/loss": 5.1 / (1 + lr * step) + wiggle})
    spool.close()


Reports = list[tuple[int, int, float]]
"""Step, tokens so far, tokens/s; the utilization is a thousandth of it."""


def rated(root: Path, *starts: tuple[int, int, Reports]) -> Path:
    """A run below root/runs with such reports of starts, given as (attempt, restart, reports)."""
    path = made(root, "run")
    shutil.rmtree(path / "track")
    for attempt, restart, reports in starts:
        report(path, attempt, restart, reports)
    return path


def report(path: Path, attempt: int, restart: int, reports: Reports) -> None:
    """A start of an attempt, which is made like the first one if need be; MLflow tells starts apart
    by milliseconds, which no real ones share."""
    time.sleep(0.002)
    if attempt > 1:
        shutil.copytree(path / "attempts/1", path / f"attempts/{attempt}", dirs_exist_ok=True)
    spool = Spool(path, attempt, restart=restart)
    for step, tokens, rate in reports:
        speed = {"perf/tokens_per_s": rate, "perf/mfu": rate / 1000}
        spool.log(step, speed | {"train/tokens": float(tokens)})
    spool.close()
