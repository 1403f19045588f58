"""Reading a checkpoint."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as read
from torch.optim import Optimizer

from ringshard.checkpoint.group import on_first_rank
from ringshard.checkpoint.metadata import Reader, broken_files, differences
from ringshard.checkpoint.state import MODEL, OPTIMIZER, TrainState, tensors
from ringshard.errors import ConfigError
from ringshard.saved import committed


def latest(root: Path, group: dist.ProcessGroup | None = None) -> Path | None:
    """The newest complete checkpoint in `root`, the same one on all ranks of `group`, or None."""
    return on_first_rank(lambda: next(reversed(committed(root).values()), None), group)


@torch.no_grad()
def load(
    path: Path,
    model: nn.Module,
    optimizer: Optimizer | None,
    group: dist.ProcessGroup | None,
) -> TrainState:
    """Fills `model` and `optimizer` from the checkpoint in `path`, however many ranks wrote it.

    Every rank of `group` (gloo; None: a single process) calls it. optimizer=None: weights alone.
    Hyperparameters stay those of `optimizer`. Raises ConfigError that lists every missing, unknown
    or different tensor and every broken file, before any tensor is touched.
    """
    state, reader = TrainState.read(path), Reader(path)
    metadata = reader.read_metadata()
    stored = metadata.state_dict_metadata
    if optimizer is None:
        stored = {name: item for name, item in stored.items() if name.startswith(MODEL)}
    elif not optimizer.state and any(name.startswith(OPTIMIZER) for name in stored):
        # Makes the state by a step at rate 0; what that may change is overwritten by the load.
        get_optimizer_state_dict(model, optimizer)
    wanted = tensors(model, optimizer)
    if problems := differences(stored, wanted) + broken_files(path, metadata):
        raise ConfigError(
            f"checkpoint {path} does not fit ({'; '.join(problems)}): "
            "use it with the model and optimizer that it was saved with, or choose another one"
        )
    read(wanted, storage_reader=reader, process_group=group, no_dist=group is None)
    return state
