"""Outputs of attention over disjoint keys, made the output over all of them."""

import torch
from torch import Tensor


def merge_(out: Tensor, lse: Tensor, block_out: Tensor, block_lse: Tensor) -> None:
    """Merges a block into (out, lse) in place; out (…, S, D), lse (…, S), fp32 or fp64.

    l ← log(eˡ + eˡ'), o ← o + (o' - o) eˡ'⁻ˡ. The exponential is of a number ≤ 0 and `logaddexp`
    subtracts the larger, so that nothing overflows. One of the two lse must be finite.
    """
    merged = torch.logaddexp(lse, block_lse)
    weight = (block_lse - merged).exp_()
    out.lerp_(block_out.to(out.dtype), weight[..., None])
    lse.copy_(merged)
