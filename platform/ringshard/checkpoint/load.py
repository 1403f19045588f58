"""Reading a checkpoint: first every byte that is wanted is verified, then a tensor is touched."""

import errno
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as read
from torch.optim import Optimizer

from ringshard.checkpoint import random_state
from ringshard.checkpoint.directory import committed, reading, reject
from ringshard.checkpoint.group import on_first_rank, raised_by_all
from ringshard.checkpoint.manifest import MANIFEST, DamagedError, Manifest
from ringshard.checkpoint.metadata import Reader, differences
from ringshard.checkpoint.state import (
    MODEL,
    OPTIMIZER,
    TrainState,
    average_of,
    averages,
    require_averages,
    tensors,
)
from ringshard.config.schema.checkpoint import Verify
from ringshard.errors import ConfigError
from ringshard.files import is_listed

PATIENCE_S = 60.0
"""How long a rank waits until a network file system shows what the first rank sees."""


def latest(root: Path, group: dist.ProcessGroup | None = None) -> Path | None:
    """The newest complete checkpoint in `root`, the same one on all ranks of `group`, or None."""
    return on_first_rank(lambda: next(reversed(committed(root).values()), None), group)


def restore(
    root: Path,
    model: nn.Module,
    optimizer: Optimizer,
    group: dist.ProcessGroup | None,
    verify: Verify = Verify.shard,
    say: Callable[[str], None] = lambda _: None,
) -> TrainState | None:
    """Fills `model` and `optimizer` from the newest checkpoint in `root` that is intact; None where
    there is none. Every rank of `group` calls it.

    A damaged one is taken off the list, recorded and told, and the one before it is used. Raises
    ConfigError where all are damaged: to begin anew would be a surprise.
    """
    damaged = []
    while (path := latest(root, group)) is not None:
        try:
            return load(path, model, optimizer, group, verify)
        except DamagedError as error:  # on all ranks
            damaged.append(str(error))
            say(f"{error}: the one before it is used")
            on_first_rank(partial(reject, path, str(error)), group)
    if damaged:
        raise ConfigError(
            f"no checkpoint of the run is intact ({'; '.join(damaged)}): start a new run"
        )
    return None


@torch.no_grad()
def load(
    path: Path,
    model: nn.Module,
    optimizer: Optimizer | None,
    group: dist.ProcessGroup | None,
    verify: Verify = Verify.shard,
    averaged: bool = False,
) -> TrainState:
    """Fills `model` and `optimizer` from the checkpoint in `path`, however many ranks wrote it.

    Every rank of `group` (gloo; None: a single process) calls it. optimizer=None: weights alone,
    or their averages.
    Hyperparameters stay those of `optimizer`. Raises DamagedError on all ranks where the bytes are
    not those that were written, and ConfigError that lists every missing, unknown or different
    tensor, both before any tensor is touched (but for what `verify=size` does not look at).
    """
    with _naming(path):
        manifest = on_first_rank(lambda: Manifest.sized(path), group)
        raised_by_all(lambda: _check_small_files(path, manifest), group)
    with reading(path):
        state, reader = TrainState.read(path), Reader(path)
        metadata = reader.read_metadata()
        wanted = raised_by_all(
            lambda: _wanted(model, optimizer, averaged, metadata, manifest), group
        )
        with _naming(path):
            raised_by_all(lambda: _verify(path, manifest, metadata, wanted, verify, group), group)
            _read(wanted, reader, group)
    random_state.restore(wanted)
    return state


def _read(wanted: dict[str, Tensor], reader: Reader, group: dist.ProcessGroup | None) -> None:
    """Raises DamagedError on all ranks where the disk has lost a block, which only `verify=size`
    can meet here."""
    try:
        read(wanted, storage_reader=reader, process_group=group, no_dist=group is None)
    except CheckpointException as error:
        for cause, _ in error.failures.values():
            if isinstance(cause, OSError) and cause.errno == errno.EIO:
                raise DamagedError(f"its tensors can't be read ({cause})") from error
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Adds which checkpoint it is to what is told of a damaged one."""
    try:
        yield
    except DamagedError as error:
        raise DamagedError(f"checkpoint {path} is damaged ({error})") from error


def _check_small_files(path: Path, manifest: Manifest) -> None:
    """Raises DamagedError where this rank, once it sees the checkpoint as well, reads others."""
    end = time.monotonic() + PATIENCE_S
    while not (is_listed(path) and is_listed(path / MANIFEST)):
        if time.monotonic() > end:
            raise RuntimeError(f"checkpoint {path} is not there on every rank")
        time.sleep(0.5)
    manifest.check_files(path, manifest.small_files)


def _wanted(
    model: nn.Module,
    optimizer: Optimizer | None,
    averaged: bool,
    metadata: Metadata,
    manifest: Manifest,
) -> dict[str, Tensor]:
    """The tensors to be filled; raises ConfigError unless what is stored fills them exactly."""
    stored = metadata.state_dict_metadata
    if optimizer and not optimizer.state and any(name.startswith(OPTIMIZER) for name in stored):
        # Makes the state by a step at rate 0; what that may change is overwritten by the load.
        get_optimizer_state_dict(model, optimizer)
    if averaged:
        require_averages(stored)
    wanted = averages(model, stored) if averaged else tensors(model, optimizer)
    names = {name for name in stored if not random_state.is_one(name)}
    if optimizer is None:
        names = {name for name in names if name.startswith(MODEL)}
    if averaged:
        names = {average_of(name, stored) for name in names}
    others = {name: stored[name] for name in names}
    if problems := differences(others, wanted):
        raise ConfigError(
            f"the checkpoint does not fit ({'; '.join(problems)}): "
            "use it with the model and optimizer that it was saved with, or choose another one"
        )
    return wanted | random_state.wanted(stored, manifest.about["world_size"])


def _verify(
    path: Path,
    manifest: Manifest,
    metadata: Metadata,
    wanted: Mapping[str, Tensor],
    verify: Verify,
    group: dist.ProcessGroup | None,
) -> None:
    """Raises DamagedError for what this rank finds: in the parts it will read, or, for `full`, in
    its share of all files."""
    rank, size = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    if verify is Verify.shard:
        for name, items in _items(metadata, wanted).items():
            manifest.check_items(path, name, items)
    elif verify is Verify.full:
        manifest.check_files(path, sorted(manifest.files)[rank::size])


def _items(metadata: Metadata, wanted: Mapping[str, Tensor]) -> dict[str, set[tuple[int, int]]]:
    """Where in which files lies what will be read: (offset, length)."""
    planner = DefaultLoadPlanner()
    planner.set_up_planner(dict(wanted), metadata, is_coordinator=False)
    found: dict[str, set[tuple[int, int]]] = {}
    for item in planner.create_local_plan().items:
        place = metadata.storage_data[item.storage_index]
        found.setdefault(place.relative_path, set()).add((place.offset, place.length))
    return found
