"""The gradient noise scale: up to which batch more devices help (McCandlish et al. 2018,
arXiv:1812.06162, appendix A.1).

With g_b the mean gradient of b tokens, E‖g_b‖² = ‖G‖² + tr(Σ) / b. The gradients of a step's first
half and of all of it give both unknowns; tr(Σ) / ‖G‖² is the critical batch: much below it twice
the batch halves the steps, much above it nothing is gained. The halves go by the rows' order in the
step, so the number does not depend on processes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ringshard.model.head import IGNORED
from ringshard.train.pieces import Piece

DECAY = 0.9
"""Of the averages over measurements: one is far too noisy to divide by."""

Backward = Callable[[Sequence[Piece]], Tensor]
"""Adds the gradients of pieces, each token's loss divided by the tokens of the whole step; returns
the loss."""


def halves(
    pieces: Sequence[Piece], first: int, micro_batch: int, boundary: int
) -> tuple[list[Piece], list[Piece]]:
    """The pieces with targets of rows below `boundary` alone, and of the others alone.

    first: place of the first row of the first piece among the step's rows; each piece has
    `micro_batch` of them.
    """
    early, late = [], []
    for index, piece in enumerate(pieces):
        rows = torch.arange(len(piece.targets)) + first + index * micro_batch
        is_early = (rows < boundary)[:, None]
        early.append(replace(piece, targets=piece.targets.masked_fill(~is_early, IGNORED)))
        late.append(replace(piece, targets=piece.targets.masked_fill(is_early, IGNORED)))
    return early, late


def estimates(small: Tensor, big: Tensor, few: int, many: int) -> tuple[Tensor, Tensor]:
    """‖G‖² and tr(Σ), unbiased, of the norms of the mean gradients of `few` and `many` tokens, the
    former among the latter."""
    small, big = small.double().square(), big.double().square()
    return (many * big - few * small) / (many - few), (small - big) / (1 / few - 1 / many)


@dataclass
class NoiseScale:
    """Measures every `every` steps; 0: never."""

    every: int
    averages: Tensor = field(default_factory=lambda: torch.zeros(2, dtype=torch.float64))
    """‖G‖² and tr(Σ) of the measurements of a run, from 0 on: their ratio needs no correction."""

    @classmethod
    def resumed(cls, every: int, averages: Sequence[float]) -> "NoiseScale":
        """One that goes on with the averages of a checkpoint."""
        return cls(every, torch.tensor(averages, dtype=torch.float64))

    def due(self, step: int, first_half: int, targets: int) -> bool:
        """Whether step `step` (from 1) is measured: both halves must learn something."""
        return self.every > 0 and step % self.every == 0 and 0 < first_half < targets

    def measure(
        self,
        parts: tuple[Sequence[Piece], Sequence[Piece]],
        first_half: int,
        targets: int,
        backward: Backward,
        norm: Callable[[], Tensor],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Adds the gradients of both halves; returns the loss and metrics, 0-dim on the device.

        first_half, targets: learned tokens of the first half and of the step; norm: of the
        gradients so far, the same on all ranks.
        """
        loss = backward(parts[0])
        small = norm() * (targets / first_half)
        loss += backward(parts[1])
        found = torch.stack(estimates(small, norm(), first_half, targets))
        before = self.averages.to(found.device)
        new = torch.lerp(before, found, 1 - DECAY)
        self.averages = torch.where(found.isfinite().all(), new, before)
        square, noise = self.averages
        return loss, {
            "noise/gradient_square": found[0],
            "noise/trace": found[1],
            "noise/critical_batch": noise / square,
        }
