"""Ranks of a gloo process group, forked from the test: a third of a second instead of an import of
torch each.

Never run a backward pass or a compiled function in the parent before forking: the threads of
autograd and of the compiler do not survive a fork, and what waits for them hangs.
"""

import multiprocessing as mp
import os
import pickle
import signal
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

TIMEOUT_S = 120


def run_ranks(
    world_size: int, function: Callable[..., Any], *args: Any, timeout_s: float = TIMEOUT_S
) -> list[Any]:
    """Calls `function(*args)` on each rank of a new process group; returns each rank's (pickled)
    result."""
    context = mp.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        pipes, processes = [], []
        for rank in range(world_size):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(
                target=_rank, args=(sender, store, rank, world_size, function, args)
            )
            process.start()
            sender.close()
            pipes.append(receiver)
            processes.append(process)
        try:
            return [_receive(pipe, rank, timeout_s) for rank, pipe in enumerate(pipes)]
        finally:
            for process in processes:
                if process.pid and process.is_alive():
                    process.join(5)
                    if process.is_alive():
                        os.kill(process.pid, signal.SIGKILL)
                process.join()


def _receive(pipe: Connection, rank: int, timeout_s: float) -> Any:
    if not pipe.poll(timeout_s):
        raise TimeoutError(f"rank {rank} gave no result within {timeout_s:g} s")
    try:
        succeeded, result = pickle.loads(pipe.recv_bytes())
    except EOFError:
        raise RuntimeError(f"rank {rank} died") from None
    if not succeeded:
        raise RuntimeError(f"rank {rank} failed:\n{result}")
    return result


def _rank(
    pipe: Connection,
    store: str,
    rank: int,
    world_size: int,
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    torch.set_num_threads(1)
    try:
        file_store = dist.FileStore(store, world_size)
        dist.init_process_group("gloo", store=file_store, rank=rank, world_size=world_size)
        # Plain pickle copies tensors; the pipe's own would share memory with a process that ends.
        pipe.send_bytes(pickle.dumps((True, function(*args))))
        # A rank that left early would take the peers' connections with it.
        dist.barrier()
    except BaseException:
        pipe.send_bytes(pickle.dumps((False, traceback.format_exc())))
    finally:
        pipe.close()
        os._exit(0)
