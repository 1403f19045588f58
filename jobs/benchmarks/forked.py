"""A function on several forked gloo ranks; forking takes a fraction of a second, for torch is
imported already."""

import multiprocessing as mp
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


def on_ranks(world: int, function: Callable[..., T], *args: Any) -> list[T]:
    """What `function(*args)` returns on each rank, where torch.distributed is at its disposal."""
    context = mp.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes = []
        for rank in range(world):
            receiver, sender = context.Pipe(duplex=False)
            given = (sender, str(Path(folder) / "store"), rank, world, function, args)
            context.Process(target=_rank, args=given, daemon=True).start()
            sender.close()
            pipes.append(receiver)
        return [pipe.recv() for pipe in pipes]


def _rank(
    pipe: Any, store: str, rank: int, world: int, function: Callable[..., Any], args: Any
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    pipe.send(function(*args))
    dist.barrier()
