"""Loss on rows in a fixed order: the same number for any topology."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from ringshard.data.dataset import Dataset, Rows, concatenated
from ringshard.parallel.mesh import Mesh
from ringshard.train.batches import batch_of
from ringshard.train.pieces import Cutter
from ringshard.train.step import CorpusLosses


@dataclass(frozen=True)
class Evaluation:
    """Result of an evaluation."""

    loss: float
    """Mean cross-entropy over all target tokens [nats]."""
    tokens: int
    """Target tokens."""
    corpora: dict[str, float]
    """Mean cross-entropy of each corpus that has target tokens [nats]."""

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(min(self.loss, 700.0))

    def metrics(self, split: str = "val") -> dict[str, float]:
        """As logged; the corpora only where there are several."""
        named = {f"{split}/loss/{name}": loss for name, loss in self.corpora.items()}
        several = named if len(named) > 1 else {}
        return {f"{split}/loss": self.loss, f"{split}/perplexity": self.perplexity} | several


@torch.no_grad()
def evaluate(
    model: nn.Module,
    dataset: Dataset,
    mesh: Mesh,
    cutter: Cutter,
    sequences: int,
    micro_batch: int,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluation:
    """Loss on the first `sequences` rows of `dataset` (0: all of one epoch), dropout off.

    advance: told after each pass how many rows are done, and of how many.

    Ranks take turns row by row, and all of them make the same number of forward passes, since each
    one gathers weights: those that run out of rows read one again and learn nothing of it.
    """
    total = min(sequences, dataset.rows) if sequences else dataset.rows
    sums = CorpusLosses.zeros(len(dataset.corpora), mesh.device)
    training = model.training
    model.eval()
    each = -(-total // mesh.dp_size)
    for start in range(0, each, micro_batch):
        turns = range(start, min(start + micro_batch, each))
        rows = [turn * mesh.dp_size + mesh.dp_rank for turn in turns]
        piece = cutter.cut(batch_of(_read(dataset, rows, total), 0)).to(mesh.device)
        _, token_losses = model(piece.input_ids, targets=piece.targets, **piece.context)
        sums.add(piece, token_losses)
        advance(min(turns.stop * mesh.dp_size, total), total)
    model.train(training)
    return _result(sums, dataset.corpora)


def _read(dataset: Dataset, rows: list[int], total: int) -> Rows:
    """The given rows; one at or beyond `total` is row 0 with nothing learned."""
    read = concatenated([dataset.read(row % total, row % total + 1) for row in rows])
    real = np.array([row < total for row in rows])
    return read._replace(loss_mask=read.loss_mask & real[:, None])


def _result(sums: CorpusLosses, names: list[str]) -> Evaluation:
    numbers = torch.stack([sums.losses, sums.counts]).to("cpu", torch.float64)
    dist.all_reduce(numbers)
    losses, counts = numbers.tolist()
    corpora = {n: s / c for n, s, c in zip(names, losses, counts, strict=True) if c > 0}
    return Evaluation(sum(losses) / max(sum(counts), 1), int(sum(counts)), corpora)
