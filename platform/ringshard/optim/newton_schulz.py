"""The orthogonal factor of a matrix, nearly, by products of matrices alone."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ringshard.config.schema.optimizer import Coefficients

Polynomials = Sequence[tuple[float, float, float]]
"""(a, b, c) of each step: every singular value s becomes a s + b s³ + c s⁵."""

EPS = 1e-7
"""Least norm that is divided by."""

POLYNOMIALS: dict[Coefficients, Polynomials] = {
    # Jordan et al. 2024: the steepest at 0, so that small values grow fastest; values end in
    # [0.68, 1.20].
    Coefficients.keller: ((3.4445, -4.7750, 2.0315),) * 5,
    # KellerJordan/modded-nanogpt, its medium track; [0.85, 1.15].
    Coefficients.quintic: (
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ),
    # Amsel et al. 2025, arXiv:2505.16932: the best polynomial of each step for what the steps
    # before leave, with a safety factor of 1.02; [0.85, 1.15].
    Coefficients.polar_express: (
        (8.156554524902461, -22.48329292557795, 15.878769915207462),
        (4.042929935166739, -2.808917465908714, 0.5000178451051316),
        (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
        (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
        (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
    ),
}


def orthogonalize(matrices: Tensor, polynomials: Polynomials, dtype: torch.dtype) -> Tensor:
    """U Vᵀ of each matrix U S Vᵀ, up to the polynomials' band; 0 for 0.

    matrices (B, m, n); returns (B, m, n) in `dtype`, in which all is computed. In bf16 the bits are
    those of torch.optim.Muon.
    """
    tall = matrices.size(-2) > matrices.size(-1)
    x = (matrices.mT if tall else matrices).to(dtype)  # (B, p, q), p <= q
    # One at a time: over two dims of a batch torch sums in another order.
    norms = torch.stack([matrix.norm() for matrix in x])
    x = x / norms.clamp(min=EPS)[:, None, None]  # not in place: it may be the momentum itself
    for a, b, c in polynomials:
        gram = torch.bmm(x, x.mT)  # (B, p, p)
        update = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, update, x, beta=a)
    return x.mT if tall else x


def orthogonalize_all(
    matrices: Sequence[Tensor], polynomials: Polynomials, dtype: torch.dtype
) -> list[Tensor]:
    """The same of matrices of any shapes: those of one shape, or of its transpose, as one batch."""
    batches: dict[tuple[int, ...], list[int]] = {}
    for index, matrix in enumerate(matrices):
        batches.setdefault(tuple(sorted(matrix.shape)), []).append(index)
    found: dict[int, Tensor] = {}
    for shape, members in batches.items():
        if 0 in shape:
            found |= {index: matrices[index].to(dtype) for index in members}
            continue
        flat = [_wide(matrices[index]) for index in members]
        results = orthogonalize(torch.stack(flat), polynomials, dtype)
        found |= dict(zip(members, results, strict=True))
    return [
        found[i].T if found[i].shape != matrix.shape else found[i]
        for i, matrix in enumerate(matrices)
    ]


def _wide(matrix: Tensor) -> Tensor:
    return matrix.T if len(matrix) > matrix.size(1) else matrix
