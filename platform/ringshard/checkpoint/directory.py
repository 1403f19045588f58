"""The folder of a run's checkpoints: how a new one gets there, how old ones go.

A checkpoint is written to `.tmp-…` and renamed to `step-00001000`: the rename is the commit. So
what a killed save leaves behind is never listed, and what is listed is never written to again.
"""

import shutil
from pathlib import Path
from uuid import uuid4

from ringshard.checkpoint.state import TrainState
from ringshard.files import sync
from ringshard.saved import METADATA, TRAIN_STATE, committed, is_complete, of_step


def begin(root: Path, step: int) -> Path | None:
    """A new folder to write the checkpoint to, or None where that step is committed already."""
    if is_complete(of_step(root, step)):
        return None
    unfinished = root / f".tmp-{of_step(root, step).name}-{uuid4().hex}"
    unfinished.mkdir(parents=True)
    return unfinished


def commit(unfinished: Path, state: TrainState, keep: int) -> Path:
    """Makes the folder a checkpoint that survives a loss of power; then old ones go.

    keep: number of checkpoints that stay, this one included; 0: all.
    """
    root, target = unfinished.parent, of_step(unfinished.parent, state.step)
    state.write(unfinished)
    # torch syncs .metadata before its buffer is flushed, and never the folder.
    for path in (unfinished / TRAIN_STATE, unfinished / METADATA, unfinished):
        sync(path)
    if target.exists():  # not complete, or `begin` would have seen it
        _discard(target)
    unfinished.rename(target)
    sync(root)
    _clean(root, target, keep)
    return target


def _clean(root: Path, newest: Path, keep: int) -> None:
    """Removes what exceeds `keep`, and what killed saves and removals have left."""
    for checkpoint in list(committed(root).values())[:-keep] if keep else ():
        if checkpoint != newest:
            _discard(checkpoint)
    for leftover in (*root.glob(".trash-*"), *root.glob(".tmp-*")):
        shutil.rmtree(leftover, ignore_errors=True)


def _discard(checkpoint: Path) -> None:
    """Takes a checkpoint off the list at once; `_clean` removes its files."""
    checkpoint.rename(checkpoint.parent / f".trash-{checkpoint.name}-{uuid4().hex}")
