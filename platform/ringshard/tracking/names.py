"""What a run is called in MLflow: its key, its parameters, and metric names that MLflow takes."""

import json
import posixpath
import re
from pathlib import Path

from ringshard.config.schema.job import Job

_LONGEST = 250
_UNTOLD = ("hydra.", "launcher", "output", "tracking", "debug", "sweep", "user")
"""Overrides that say nothing of what is trained (an address may even hold a password)."""


def run_key(run_dir: Path) -> str:
    """One key for a run directory, wherever it is moved: its name and when it was created."""
    return tags(run_dir)["ringshard.run_key"]


def tags(run_dir: Path) -> dict[str, str]:
    """What identifies a run, from its run.json."""
    run = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    found = {
        "run_key": f"{run_dir.resolve().name}@{run['created']}",
        "run_dir": run_dir.resolve(),
        "signature": run["signature"],
        "sweep": run["sweep"],
    }
    return {f"ringshard.{name}": str(value) for name, value in found.items() if value is not None}


def parameters(job: Job, overrides: list[str]) -> dict[str, str]:
    """The overrides and a few headline keys, by configuration key (600 keys would bury them)."""
    told = dict(_override(text) for text in overrides if not text.lstrip("+~").startswith(_UNTOLD))
    return {clean(key): str(value)[:500] for key, value in {**told, **_headline(job)}.items()}


def _override(text: str) -> tuple[str, str]:
    key, _, value = text.lstrip("+~").partition("=")
    return key, "(removed)" if text.startswith("~") else value


def _headline(job: Job) -> dict[str, object]:
    degrees = {f"parallelism.{k}": v for k, v in vars(job.parallelism).items() if type(v) is int}
    return {
        "model.type": job.model.type or job.model.path or job.model.pretrained,
        "data.seq_len": job.data.seq_len,
        "train.global_batch": job.train.global_batch,
        "train.seed": job.train.seed,
        "optimizer.name": job.optimizer.name,
        "optimizer.lr": job.optimizer.lr,
        "precision.compute": job.precision.compute.name,
        "hardware.world_size": job.hardware.world_size,
        **degrees,
    }


def clean(key: str) -> str:
    """A key as MLflow takes it: letters, digits, `_-.: /`, no empty or dotted folder, 250 long."""
    allowed = re.sub(r"[^\w\-.: /]", "_", key, flags=re.ASCII)
    return posixpath.normpath("/" + allowed).lstrip("/")[:_LONGEST].rstrip("/") or "_"
