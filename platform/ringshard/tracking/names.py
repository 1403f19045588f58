"""What a run is called in MLflow: its key, its parameters, and metric names that MLflow takes."""

import json
import posixpath
import re
from dataclasses import replace
from pathlib import Path

from ringshard.config.schema.job import Job
from ringshard.config.secrets import names_secret
from ringshard.launch.identity import signature
from ringshard.tracking.attachments import without_secrets

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


def created(run_dir: Path) -> float:
    """When a run was started first [s since 1970]: a copy's files have other times."""
    return float(json.loads((run_dir / "run.json").read_text(encoding="utf-8"))["created"])


def sweep(run_dir: Path) -> Path | None:
    """The folder of the sweep that a run is a member of."""
    return run_dir.resolve().parent if "ringshard.sweep" in tags(run_dir) else None


def parameters(job: Job, overrides: list[str]) -> dict[str, str]:
    """The overrides and a few headline keys, by configuration key (600 keys would bury them)."""
    told = dict(_override(text) for text in overrides if not _is_untold(text))
    values = {**told, **_headline(job)}
    return {clean(key): _shown(key, str(value))[:500] for key, value in values.items()}


def _shown(key: str, value: str) -> str:
    """A value, unless it is a secret or has the name of one."""
    is_harmless = re.fullmatch(r"[\d._+\-e]*|null|true|false", value, re.I)
    if names_secret(key.rpartition(".")[2]) and not is_harmless:
        return "[secret]"
    return without_secrets(value)


def job_tags(job: Job, overrides: list[str]) -> dict[str, str]:
    """What to group and search runs by: equal `config_hash` and another seed is a repetition."""
    told = [text for text in overrides if not _is_untold(text)]
    unseeded = replace(job, train=replace(job.train, seed=0))
    return {
        "overrides": without_secrets(" ".join(told)),
        "config_hash": signature(unseeded),
        "seed": str(job.train.seed),
    }


def _is_untold(override: str) -> bool:
    return override.lstrip("+~").startswith(_UNTOLD)


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
