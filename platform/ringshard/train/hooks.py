"""What happens beside training, after a step: each concern one class with one method, in an
explicit order."""

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ringshard import checkpoint
from ringshard.config.schema.checkpoint import Checkpoint
from ringshard.data.dataset import Dataset
from ringshard.train.attempt import Attempt
from ringshard.train.evaluate import Evaluation, evaluate

if TYPE_CHECKING:
    from ringshard.train.trainer import Trainer


class Hook(Protocol):
    """A side concern; it may read everything of the trainer."""

    def after_step(self, trainer: "Trainer", last: bool) -> None:
        """Called by every rank after each step; `last` on the last one."""
        ...


def due(step: int, every: int, last: bool) -> bool:
    """Whether something that happens every `every` steps (0: only at the end) happens after `step`
    steps."""
    return last or (every > 0 and step % every == 0)


class FirstStep:
    """Word of the first step of an attempt, once."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt: Attempt | None = attempt

    def after_step(self, trainer: "Trainer", last: bool) -> None:
        """See Hook."""
        if self.attempt and trainer.mesh.is_first:
            self.attempt.record_first_step()
        self.attempt = None


class Log:
    """Every step to the spool, one line an interval to the console."""

    def __init__(self, every: int) -> None:
        self.every = every

    def after_step(self, trainer: "Trainer", last: bool) -> None:
        """See Hook."""
        if due(trainer.state.step, self.every, last):
            trainer.report()


class Evaluate:
    """Loss on the validation split."""

    def __init__(self, dataset: Dataset, every: int, sequences: int, micro_batch: int) -> None:
        self.dataset, self.every = dataset, every
        self.sequences, self.micro_batch = sequences, micro_batch
        self.latest: Evaluation | None = None

    def after_step(self, trainer: "Trainer", last: bool) -> None:
        """See Hook."""
        if due(trainer.state.step, self.every, last):
            self.latest = evaluate(
                trainer.model,
                self.dataset,
                trainer.mesh,
                trainer.cutter,
                self.sequences,
                self.micro_batch,
            )
            trainer.log_evaluation(self.latest)


class Save:
    """A checkpoint every `every` steps, and at the end if asked."""

    def __init__(self, root: Path, config: Checkpoint) -> None:
        self.root, self.config = root, config

    def after_step(self, trainer: "Trainer", last: bool) -> None:
        """See Hook."""
        if due(trainer.state.step, self.config.every, last and self.config.at_end):
            self.save(trainer)

    def save(self, trainer: "Trainer") -> None:
        """Saves now, unless nothing is ever to be saved; a saved step is left as it is.

        The metrics go first: a run that resumes here would never come by their steps again.
        """
        if self.config.every == 0 and not self.config.at_end:
            return
        trainer.report()
        state, model, optimizer = trainer.state, trainer.model, trainer.optimizer
        group, keep = trainer.mesh.cpu_group, self.config.keep
        started = time.perf_counter()
        checkpoint.save(self.root, state, model, optimizer, group, keep=keep)
        if trainer.spool:
            took = time.perf_counter() - started
            trainer.spool.log(state.step, {"perf/checkpoint_s": took})


class CollectGarbage:
    """Python's collector at the same step on all ranks, instead of whenever each one pleases."""

    def __init__(self, every: int = 200) -> None:
        self.every = every
        gc.collect()
        gc.freeze()
        gc.disable()

    def after_step(self, trainer: "Trainer", last: bool) -> None:
        """See Hook."""
        if due(trainer.state.step, self.every, last):
            gc.collect(1)
