"""What happens beside training, after a step: each concern one class with one method, in an
explicit order."""

import gc
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from ringshard.checkpoint.saver import Saver
from ringshard.checkpoint.state import tensors
from ringshard.config.schema.checkpoint import Checkpoint
from ringshard.data.dataset import Dataset
from ringshard.optim.ruled import Ruled
from ringshard.parallel.parallelize import reshard
from ringshard.train.attempt import Attempt
from ringshard.train.evaluation.loss import Evaluation, evaluate

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
        self.step = 0
        """At which it was made."""

    def loss_at(self, step: int) -> float | None:
        """Loss after `step` steps, None where it was not measured."""
        return self.latest.loss if self.latest and self.step == step else None

    def after_step(self, trainer: "Trainer", last: bool) -> None:
        """See Hook."""
        if due(trainer.state.step, self.every, last):
            started = time.perf_counter()
            self.latest, self.step = self._evaluate(trainer), trainer.state.step
            trainer.log_evaluation(self.latest)
            if isinstance(trainer.optimizer, Ruled) and trainer.optimizer.ema_decay:
                reshard(trainer.model)
                with trainer.optimizer.averaged():
                    averaged = self._evaluate(trainer)
                    reshard(trainer.model)
                trainer.log({"val/ema_loss": averaged.loss})
            trainer.log({"val/seconds": time.perf_counter() - started})

    def _evaluate(self, trainer: "Trainer") -> Evaluation:
        return evaluate(
            trainer.model,
            self.dataset,
            trainer.mesh,
            trainer.cutter,
            self.sequences,
            self.micro_batch,
        )


class Save:
    """A checkpoint every `every` steps, and at the end if asked, written while training goes on."""

    def __init__(self, saver: Saver, config: Checkpoint, evaluation: Evaluate) -> None:
        self.saver, self.config, self.evaluation = saver, config, evaluation
        self.failed = 0
        """Saves in a row that failed."""
        self.is_unknown = config.every > 0 or config.at_end
        """Whether it is still to be seen that the optimizer's state can be saved."""

    def after_step(self, trainer: "Trainer", last: bool) -> None:
        """See Hook. Raises ConfigError at the first step for a state that can't be saved."""
        if self.is_unknown:
            tensors(trainer.model, trainer.optimizer)
            self.is_unknown = False
        if due(trainer.state.step, self.config.every, last and self.config.at_end):
            self.save(trainer)

    def save(self, trainer: "Trainer") -> None:
        """Saves now, unless nothing is ever to be saved; a saved step is left as it is.

        The metrics go first, to the disk: a run that resumes here would never come by their steps
        again.
        """
        if self.config.every == 0 and not self.config.at_end:
            return
        trainer.report()
        started = time.perf_counter()
        trainer.sink.sync()
        self._wait(trainer)
        loss = self.evaluation.loss_at(trainer.state.step)
        at_once = not self.config.asynchronous
        state = replace(trainer.state, noise=trainer.noise.averages.tolist())
        self.saver.start(state, trainer.model, trainer.optimizer, loss, at_once)
        if at_once:
            self._wait(trainer)
        trainer.log({"checkpoint/stall_s": time.perf_counter() - started})

    def finish(self, trainer: "Trainer") -> None:
        """At the end: waits for the save under way, and saves again where it failed."""
        started = time.perf_counter()
        self._wait(trainer)
        while self.failed:
            self.save(trainer)
            self._wait(trainer)
        trainer.log({"checkpoint/finish_s": time.perf_counter() - started})
        self.saver.close()

    def _wait(self, trainer: "Trainer") -> None:
        """Learns how the save under way ended; raises if too many in a row have failed."""
        try:
            saved = self.saver.wait()
        except Exception as error:
            self.failed += 1
            if self.failed > self.config.max_failed_saves:
                raise
            trainer.note(f"A checkpoint could not be saved ({error}); training goes on.\n")
            trainer.log({"checkpoint/failed": self.failed})
            return
        if saved is not None:
            self.failed = 0
            trainer.log({"checkpoint/write_s": saved[1]})


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
