"""MONA: Muon on gradients with an acceleration term (arXiv:2605.26842). Experimental.

The paper's recursion, of gradients G_k: D_k = G_k - G_{k-1}, A_k = β A_{k-1} + (1 - β) D_k, and
G_k + α A_k is used instead of G_k. The average of differences is the difference of averages: with
E_k = β E_{k-1} + (1 - β) G_k, E_0 = G_1, A_k = (1 - β) (G_k - E_{k-1}). So one buffer does,

    G_k + α (1 - β) (G_k - E_{k-1}),

and at the paper's rule α = -1 / (2 (1 - β)) it is the mean of the gradient and the slow average:
G_k / 2 + E_{k-1} / 2. Note the sign: it smooths.

Measured on 1.1 M parameters and 200 steps (LOG.md, optimizers): a validation loss of 1.97, where
Muon alone came to 1.91.
"""

import torch
from torch import Tensor


def weight(alpha: float | None, beta: float) -> float:
    """α (1 - β); alpha=None: the paper's rule, whatever β."""
    return -0.5 if alpha is None else alpha * (1 - beta)


def accelerated(
    gradient: Tensor, slow: Tensor, step: Tensor, beta: float, share: float
) -> tuple[Tensor, Tensor]:
    """The gradient with its acceleration, and the new slow average; `slow` is left as it is.

    gradient, slow: of the same shape; step: 0-dim, steps done before; share: see `weight`. The
    slow average is of the raw gradients: one of the accelerated ones would grow without bound.
    """
    before = torch.where(step == 0, gradient, slow)
    difference = gradient - before
    return gradient + share * difference, before + (1 - beta) * difference
