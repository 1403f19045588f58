"""Small numbers that travel ahead: what all ranks must know of a step before its backward pass.

One CPU tensor goes round on a gloo group, posted a step early and read when it has long arrived:
so stopping is
agreed at the same step by all ranks, and the loss is divided by the global count, with no latency
added.
"""

from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from ringshard.model.head import IGNORED
from ringshard.parallel.mesh import Mesh
from ringshard.train.batches import Batch


@dataclass(frozen=True)
class Agreed:
    """What all ranks know of a step."""

    stop: bool
    """Whether some rank was asked to stop: the step is not taken."""
    counts: Tensor
    """(rows of the step,) int64: learned tokens of each row of the step."""
    padding: int
    """Inputs of the step that are of no document, over all ranks."""

    @property
    def targets(self) -> int:
        """Learned tokens of the step, over all ranks."""
        return int(self.counts.sum())


class Agreement:
    """The exchange about one step, under way."""

    def __init__(self, batch: Batch, stop: bool, mesh: Mesh) -> None:
        self.batch = batch
        self._numbers = torch.zeros(2 + batch.step_rows, dtype=torch.int64)
        self._numbers[0] = stop
        if mesh.ring.rank == 0:  # the others of a ring have read the same rows
            counts = batch.counts
            self._numbers[1] = batch.padding
            self._numbers[2 + batch.first : 2 + batch.first + len(counts)] = counts
        self._work = dist.all_reduce(self._numbers, group=mesh.cpu_group, async_op=True)

    def wait(self) -> Agreed:
        """What was agreed."""
        assert self._work is not None
        self._work.wait()
        stop, padding, *_ = self._numbers[:2].tolist()
        return Agreed(bool(stop), self._numbers[2:], padding)


def mask_surplus(batch: Batch, counts: Tensor, budget: int) -> Batch:
    """`batch` with no target learned beyond the first `budget` of the step, in row order.

    counts (rows of the step,): learned tokens of each row of the step, over all ranks.
    """
    rows = slice(batch.first, batch.first + len(batch.targets))
    before = (counts.cumsum(0) - counts)[rows]  # learned tokens of the step before each row
    order = (batch.targets != IGNORED).cumsum(1)  # (B, S), from 1
    targets = batch.targets.masked_fill(before[:, None] + order > budget, IGNORED)
    return replace(batch, targets=targets, pieces=())
