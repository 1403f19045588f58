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
    accuracy: float
    """Share of the target tokens that are the likeliest to the model."""
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
        numbers = {"loss": self.loss, "perplexity": self.perplexity, "accuracy": self.accuracy}
        return {f"{split}/{name}": value for name, value in numbers.items()} | several


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
    """What the first `sequences` rows of `dataset` (0: all of one epoch) come to, dropout off.

    advance: told after each pass how many rows are done, and of how many.

    Ranks take turns row by row, and all of them make the same number of forward passes, since each
    one gathers weights: those that run out of rows read one again and learn nothing of it.
    """
    total = min(sequences, dataset.rows) if sequences else dataset.rows
    sums = CorpusLosses.zeros(len(dataset.corpora), mesh.device)
    hits = torch.zeros(1, dtype=torch.float64, device=mesh.device)
    training = model.training
    model.eval()
    each = -(-total // mesh.dp_size)
    for start in range(0, each, micro_batch):
        turns = range(start, min(start + micro_batch, each))
        rows = [turn * mesh.dp_size + mesh.dp_rank for turn in turns]
        piece = cutter.cut(batch_of(_read(dataset, rows, total), 0)).to(mesh.device)
        _, losses, is_hit = model(piece.input_ids, targets=piece.targets, **piece.context)
        sums.add(piece, losses)
        hits += is_hit.sum()
        advance(min(turns.stop * mesh.dp_size, total), total)
    model.train(training)
    return _result(sums, hits, dataset.corpora)


def _read(dataset: Dataset, rows: list[int], total: int) -> Rows:
    """The given rows; one at or beyond `total` is row 0 with nothing learned."""
    read = concatenated([dataset.read(row % total, row % total + 1) for row in rows])
    real = np.array([row < total for row in rows])
    return read._replace(loss_mask=read.loss_mask & real[:, None])


def _result(sums: CorpusLosses, hits: torch.Tensor, names: list[str]) -> Evaluation:
    numbers = torch.cat([sums.losses, sums.counts, hits]).to("cpu", torch.float64)
    dist.all_reduce(numbers)
    *of_corpora, right = numbers.tolist()
    losses, counts = of_corpora[: len(names)], of_corpora[len(names) :]
    tokens = int(sum(counts))
    corpora = {n: s / c for n, s, c in zip(names, losses, counts, strict=True) if c > 0}
    return Evaluation(sum(losses) / max(tokens, 1), right / max(tokens, 1), tokens, corpora)
