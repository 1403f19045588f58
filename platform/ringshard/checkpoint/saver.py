"""Saving beside training: the training thread pays for a copy, a thread writes and commits it.

Or at once, without the copy.
"""

import threading
import time
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.optim import Optimizer

from ringshard.checkpoint.random_state import uses_gpu
from ringshard.checkpoint.save import Place, contents, write
from ringshard.checkpoint.state import TrainState


class Saver:
    """One save at a time; the memory of one copy, used again each time."""

    def __init__(self, place: Place, group: dist.ProcessGroup | None) -> None:
        """group: gloo, all ranks, and nobody else's: two threads must not share one."""
        self.place, self.group = place, group
        self._running: Future[tuple[Path, float]] | None = None

    @cached_property
    def _stager(self) -> DefaultStager:
        on_gpu = uses_gpu()
        options = StagingOptions(
            use_pinned_memory=on_gpu,
            use_shared_memory=False,
            use_async_staging=False,
            use_non_blocking_copy=on_gpu,
        )
        return DefaultStager(options)

    def start(
        self,
        state: TrainState,
        model: nn.Module,
        optimizer: Optimizer,
        loss: float | None = None,
        at_once: bool = False,
    ) -> None:
        """Copies what is to be saved, and returns; the save before must have been waited for.

        loss: on the validation split, where it is known; at_once: without a copy, and returns when
        all is written. `wait` tells how it went.
        """
        assert self._running is None, "two saves at once"
        held = contents(model, optimizer)
        if not at_once:
            staged = self._stager.stage(held)
            assert isinstance(staged, dict)
            held = staged
        self._running = Future()
        args = (self._running, self.place.measured(loss), state, held)
        if at_once:
            self._write(*args)
        else:
            threading.Thread(target=self._write, args=args, daemon=True).start()

    def wait(self) -> tuple[Path, float] | None:
        """Where the save under way went, and the seconds it took; None where there is none.

        Raises what it raised; all ranks do.
        """
        running, self._running = self._running, None
        return None if running is None else running.result()

    def close(self) -> None:
        """Gives the memory of the copy back, where there is one."""
        if "_stager" in vars(self):
            self._stager.close()

    def _write(
        self,
        done: "Future[tuple[Path, float]]",
        place: Place,
        state: TrainState,
        held: dict[str, Tensor],
    ) -> None:
        started = time.perf_counter()
        try:
            path = write(place, state, held, self.group)
            done.set_result((path, time.perf_counter() - started))
        except BaseException as error:  # raised again in `wait`
            done.set_exception(error)
