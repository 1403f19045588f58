"""Writing a checkpoint: every rank its part, then one rename."""

import errno
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save as write_tensors
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from ringshard.checkpoint import directory, random_state
from ringshard.checkpoint.best import LOSS, pin_best
from ringshard.checkpoint.directory import METADATA, TRAIN_STATE
from ringshard.checkpoint.group import everyones, on_first_rank
from ringshard.checkpoint.manifest import Entry, Manifest, digest_of_file
from ringshard.checkpoint.state import TrainState, tensors
from ringshard.checkpoint.writer import Writer


@dataclass(frozen=True)
class Place:
    """Where checkpoints go, and which stay."""

    root: Path
    keep: int = 0
    """Number of newest checkpoints that stay; 0: all."""
    keep_every: int = 0
    """Each whose step is a multiple stays as well; 0: none."""
    keep_best: bool = False
    """Whether the one with the lowest validation loss stays as well."""
    about: dict[str, Any] = field(default_factory=dict)
    """What the manifest says beside versions and world size; plain data."""

    def measured(self, loss: float | None) -> "Place":
        """For a checkpoint whose validation loss is known."""
        return self if loss is None else replace(self, about=self.about | {LOSS: loss})


def save(
    place: Place,
    state: TrainState,
    model: nn.Module,
    optimizer: Optimizer,
    group: dist.ProcessGroup | None,
) -> Path:
    """Saves model, optimizer, random numbers and `state` as `root/step-…`; returns that folder.

    Every rank of `group` (gloo; None: a single process) calls it at the same step. Nothing that
    is trained changes. A step that is committed already is left as it is. A failure on one rank
    raises on all.
    """
    return write(place, state, contents(model, optimizer), group)


def contents(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """What a checkpoint of this rank holds; the tensors themselves."""
    return tensors(model, optimizer) | random_state.current()


def write(
    place: Place, state: TrainState, held: dict[str, Tensor], group: dist.ProcessGroup | None
) -> Path:
    """Writes and commits what `contents` gave, or a copy of it."""
    needed = sum(everyones(sum(map(bytes_written, held.values())), group))
    unfinished = on_first_rank(lambda: _begin(place.root, state.step, needed), group)
    if unfinished is None:
        return directory.of_step(place.root, state.step)
    writer = Writer(unfinished)
    # The first rank returns when all have written.
    try:
        write_tensors(held, storage_writer=writer, process_group=group, no_dist=group is None)
    except CheckpointException as error:
        raise next(iter(error.failures.values()))[0] from error
    parts = everyones(writer.files, group)
    return on_first_rank(lambda: _commit(unfinished, place, state, parts), group)


def _begin(root: Path, step: int, needed: int) -> Path | None:
    """See `directory.begin`; raises OSError where the disk can't take that many bytes."""
    root.mkdir(parents=True, exist_ok=True)
    directory.remove_leftovers(root)  # they may be what fills the disk
    free = shutil.disk_usage(root).free
    if free < needed:
        raise OSError(
            errno.ENOSPC, f"a checkpoint of {needed:,} bytes, {free:,} bytes are free", str(root)
        )
    return directory.begin(root, step)


def _commit(
    unfinished: Path, place: Place, state: TrainState, parts: list[dict[str, Entry]]
) -> Path:
    state.write(unfinished)
    files = {name: entry for part in parts for name, entry in part.items()}
    for name in (METADATA, TRAIN_STATE):
        path = unfinished / name
        files[name] = Entry(path.stat().st_size, digest_of_file(path), [])
    versions = {name: version(name) for name in ("ringshard", "torch")}
    about = {"versions": versions, "world_size": len(parts), **place.about}
    Manifest(files, about).write(unfinished)
    saved = directory.commit(unfinished, state.step)
    if place.keep_best:
        with _saved_all_the_same(saved):
            pin_best(place.root)
    with _saved_all_the_same(saved):
        directory.prune(place.root, saved, place.keep, place.keep_every)
    return saved


@contextmanager
def _saved_all_the_same(saved: Path) -> Iterator[None]:
    """Tells of what the disk refuses once a checkpoint is committed."""
    try:
        yield
    except OSError as error:
        warnings.warn(f"{saved} is saved; of older ones: {error}", stacklevel=1)


def bytes_written(tensor: Tensor) -> int:
    """What this rank writes of it: of replicas the first one."""
    if not isinstance(tensor, DTensor):
        return tensor.nbytes
    places = zip(tensor.placements, tensor.device_mesh.get_coordinate() or (), strict=True)
    is_copy = any(placement.is_replicate() and index > 0 for placement, index in places)
    return 0 if is_copy else tensor.to_local().nbytes
