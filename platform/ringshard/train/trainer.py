"""The loop. It reads from top to bottom: batch, forward and backward, clip, step, log."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import mean

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ringshard.checkpoint.state import TrainState
from ringshard.config.length import Length
from ringshard.config.schema.job import Job
from ringshard.model.init import hashed_seed
from ringshard.optim import schedule
from ringshard.optim.release import Release
from ringshard.parallel.mesh import Mesh
from ringshard.tracking.sink import Sink, Unrecorded
from ringshard.train.agreement import Agreed, Agreement, mask_surplus
from ringshard.train.batches import Batch, Batches
from ringshard.train.console import Console
from ringshard.train.evaluation.loss import Evaluation
from ringshard.train.hooks import Hook
from ringshard.train.noise import NoiseScale, halves
from ringshard.train.pieces import Cutter, Piece
from ringshard.train.recorder import Facts, Recorder
from ringshard.train.step import clip_gradients, forward_backward, update


@dataclass
class Trainer:
    """Trains `model` from `state` to the end of `length`, or until asked to stop."""

    job: Job
    mesh: Mesh
    model: PreTrainedModel
    optimizer: torch.optim.Optimizer
    batches: Batches
    cutter: Cutter
    length: Length
    state: TrainState
    recorder: Recorder
    hooks: Sequence[Hook]
    stop_requested: Callable[[], bool]
    release: Release | None = None
    """What updates the weights within the backward pass, if asked for."""
    console: Console | None = None
    """Rank 0 only."""
    sink: Sink = field(default_factory=Unrecorded)
    """Where metrics go."""
    noise: NoiseScale = field(default_factory=lambda: NoiseScale(0))
    """Measures how noisy gradients are, if asked for."""
    last_loss: float | None = None
    """Loss of the last step that was reported."""

    def run(self) -> bool:
        """Trains; returns whether the end was reached (False: asked to stop, at the same step on
        all ranks)."""
        self.model.train()
        upcoming = self._announce()
        while not self.length.over(self.state.step, self.state.tokens_seen):
            started, waited = time.perf_counter(), self.batches.wait_s
            batch, agreed = upcoming.batch, upcoming.wait()
            if agreed.stop:
                self.report()
                return False
            upcoming = self._announce()
            self._step(batch, agreed)
            self.recorder.seconds += time.perf_counter() - started
            self.recorder.data_wait_s += self.batches.wait_s - waited
            last = self.length.over(self.state.step, self.state.tokens_seen)
            for hook in self.hooks:
                hook.after_step(self, last)
        upcoming.wait()  # every rank announced a step that none will take
        return True

    def _announce(self) -> Agreement:
        """Starts the exchange about the next step while the present one computes."""
        batch = self.batches.next()
        return Agreement(batch, self.stop_requested(), self.mesh)

    def _step(self, batch: Batch, agreed: Agreed) -> None:
        state, train = self.state, self.job.train
        budget = self.length.budget(state.tokens_seen)
        targets = agreed.targets
        if budget is not None and targets > budget:
            batch, targets = mask_surplus(batch, agreed.counts, budget), budget
        # Dropout is drawn anew from (seed, step, rank) each step: no generator need be saved.
        torch.manual_seed(hashed_seed(train.seed, state.step, self.mesh.rank))
        lr = self.lr()
        if self.release:
            self.release.begin(lr)
        pieces = batch.pieces or self.cutter.pieces(batch, train.rows_at_once)
        loss, noise = self._backward(pieces, batch, agreed, targets)
        if self.release:
            grad_norm = self.release.finish()
        else:
            grad_norm = clip_gradients(self.model, train.grad_clip)
            update(self.optimizer, lr, grad_norm)
        self.state = TrainState(
            state.step + 1, state.tokens_seen + targets, state.rows_read + batch.step_rows
        )
        facts: Facts = {"train/lr": lr, "train/targets": targets, **noise}
        facts["train/tokens"] = self.state.tokens_seen
        length = self.job.data.seq_len
        facts["data/padding"] = agreed.padding / (batch.step_rows * batch.input_ids.shape[1])
        facts["train/flops"] = self.state.rows_read * length * self.recorder.peak.flops_per_token
        if self.mesh.ring.size > 1:
            facts["ring/imbalance"] = mean(piece.imbalance for piece in pieces)
        self.recorder.add(facts, loss, grad_norm, batch.step_rows * length)

    def _backward(
        self, pieces: Sequence[Piece], batch: Batch, agreed: Agreed, targets: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Forward and backward; the loss, and the noise of the gradient where it is measured."""

        def backward(part: Sequence[Piece]) -> Tensor:
            divisor = max(targets, 1)  # a step may have nothing to learn
            device, corpora = self.mesh.device, self.recorder.corpora
            return forward_backward(self.model, part, divisor, device, corpora)

        middle = batch.step_rows // 2
        first_half = int(agreed.counts[:middle].sum())
        whole = targets == agreed.targets
        if not (whole and self.noise.due(self.state.step + 1, first_half, targets)):
            return backward(pieces), {}
        parts = halves(pieces, batch.first, self.job.train.rows_at_once, middle)
        norm = partial(clip_gradients, self.model, 0.0)
        return self.noise.measure(parts, first_half, targets, backward, norm)

    def lr(self) -> float:
        """Learning rate of the next step."""
        position = self.length.position(self.state.step, self.state.tokens_seen)
        peak = schedule.peak(self.job.optimizer, self.job.train.global_batch)
        return peak * schedule.factor(self.job.schedule, position, self.length)

    def report(self) -> None:
        """Brings the metrics of the steps since the last report, if any, to spool and console."""
        if not self.recorder.steps:
            return
        before = self.recorder.skipped
        steps = self.recorder.flush()
        first = self.state.step - len(steps) + 1
        for step, metrics in enumerate(steps, first):
            self.sink.log(step, metrics)
        self.last_loss = steps[-1]["train/loss"]
        if self.console:
            total = self.length.expected_steps(self.state.step, self.state.tokens_seen)
            self.console.step(self.state.step, steps[-1], total)
            if skipped := self.recorder.skipped - before:
                self.console.note(
                    f"{skipped} of these {len(steps)} updates skipped: the gradient is not finite"
                )

    def log_evaluation(self, evaluation: Evaluation) -> None:
        """Brings an evaluation to the spool and the console."""
        self.log(evaluation.metrics())
        if self.console:
            self.console.evaluation(self.state.step, evaluation.metrics())

    def log(self, metrics: dict[str, float]) -> None:
        """Brings numbers of the present step to the spool."""
        self.sink.log(self.state.step, metrics)

    def note(self, text: str) -> None:
        """Says something on the console."""
        if self.console:
            self.console.note(text)

    def close(self) -> None:
        """Ends the reading thread, the console and the record."""
        self.batches.close()
        if self.console:
            self.console.close()
        self.sink.close()
