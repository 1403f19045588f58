"""Writing a checkpoint."""

from pathlib import Path

import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save as write
from torch.optim import Optimizer

from ringshard.checkpoint import directory
from ringshard.checkpoint.group import on_first_rank
from ringshard.checkpoint.state import TrainState, tensors
from ringshard.saved import of_step


def save(
    root: Path,
    state: TrainState,
    model: nn.Module,
    optimizer: Optimizer,
    group: dist.ProcessGroup | None,
    keep: int = 0,
) -> Path:
    """Saves model, optimizer and `state` as `root/step-…`, and returns that folder.

    Every rank of `group` (gloo; None: a single process) calls it at the same step. Nothing that
    is trained changes. A step that is committed already is left as it is.
    keep: number of newest checkpoints that stay; 0: all. A failure on one rank raises on all.
    """
    unfinished = on_first_rank(lambda: directory.begin(root, state.step), group)
    if unfinished is None:
        return of_step(root, state.step)
    write(
        tensors(model, optimizer),
        # More than one thread would swallow the errors of the others, a full disk among them.
        storage_writer=FileSystemWriter(unfinished, sync_files=True, thread_count=1),
        process_group=group,
        no_dist=group is None,
    )  # the first rank returns when all have written
    return on_first_rank(lambda: directory.commit(unfinished, state, keep), group)
