"""Checkpoints that stay, as models in MLflow: where they lie and how good they are; no weights."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ringshard.checkpoint.directory import committed, pins
from ringshard.checkpoint.manifest import MANIFEST
from ringshard.config.schema.checkpoint import Checkpoint
from ringshard.tracking.batches import Point, points_at
from ringshard.tracking.spool import SpoolFile, is_node

_METRICS = ("train/loss", "val/loss", "val/ema_loss")


class Model(NamedTuple):
    """A checkpoint as MLflow is told of it."""

    name: str
    tags: dict[str, str]
    points: list[Point]
    """What was measured at its step, as it was sent for the run."""


def staying(run_dir: Path, policy: Checkpoint, is_final: bool) -> dict[int, Path]:
    """Checkpoints by step that nothing will remove by itself: all, once the run is over, or where
    the policy keeps all; before, those that are pinned and each `keep_every`-th."""
    root = run_dir / "checkpoints"
    pinned, every = set(pins(root).values()), policy.keep_every
    return {
        step: path
        for step, path in committed(root).items()
        if is_final or not policy.keep or path.name in pinned or (every and step % every == 0)
    }


def described(checkpoints: Mapping[int, Path], history: Iterable[SpoolFile]) -> list[Model]:
    """What MLflow is told of checkpoints by their steps; the spools are read once for all."""
    measured: dict[int, list[Point]] = {step: [] for step in checkpoints}
    for spool in history if checkpoints else ():
        if not is_node(spool.writer):
            for point in points_at(spool, checkpoints, _METRICS):
                measured[point.step].append(point)
    return [_model(path, step, measured[step]) for step, path in checkpoints.items()]


def _model(checkpoint: Path, step: int, points: list[Point]) -> Model:
    digest = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))["digest"]
    tags = {"path": str(checkpoint.resolve()), "step": str(step), "digest": str(digest)}
    return Model(checkpoint.name, tags, [p for p in points if not math.isnan(p.value)])
