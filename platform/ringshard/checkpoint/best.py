"""The checkpoint with the lowest validation loss at its step is kept, pinned as `best`."""

import math
from pathlib import Path

from ringshard.checkpoint.directory import committed, pin, pins
from ringshard.checkpoint.manifest import DamagedError, Manifest

BEST = "best"
LOSS = "val_loss"
"""What a manifest says of it; absent where the step was not evaluated."""


def pin_best(root: Path) -> None:
    """Pins the better one of the pinned checkpoint and the newest two: of two, since a run that is
    killed after a commit has not compared that one."""
    known = list(committed(root).values())
    candidates = [*(path for path in known if path.name == pins(root).get(BEST)), *known[-2:]]
    losses = {path: loss_of(path) for path in candidates}
    best = min(candidates, key=lambda path: losses[path])
    if math.isfinite(losses[best]):
        pin(best, BEST)


def loss_of(checkpoint: Path) -> float:
    """Validation loss at its step; infinite where there is none or it is not finite."""
    try:
        loss = Manifest.read(checkpoint).about.get(LOSS)
    except DamagedError:
        return math.inf
    return loss if loss is not None and math.isfinite(loss) else math.inf
