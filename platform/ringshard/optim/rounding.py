"""Random rounding of fp32 to bf16, as a function of where a number stands and of the step."""

import torch
from torch import Tensor

CHUNK = 1 << 20
"""Numbers at a time: their random bits take 8 bytes each."""
_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64


def stochastically_rounded(x: Tensor, key: int, step: Tensor, first: int) -> Tensor:
    """`x` (fp32) in bf16, each number up or down with the probability that keeps its mean.

    key: hash of what else the draw depends on; step: 0-dim; first: place of x's first number in
    the whole parameter. A number of 16 random bits is added below bf16's last bit and the rest cut
    off (Zamirai et al. 2020, arXiv:2010.06192). Integers alone, so that any device draws the same.
    """
    flat = x.flatten()
    rounded = torch.empty_like(flat, dtype=torch.bfloat16)
    seed = _mixed(step.long() * _GOLDEN + key)
    for start in range(0, len(flat), CHUNK):
        part = flat[start : start + CHUNK]
        place = torch.arange(first + start, first + start + len(part), device=x.device)
        noise = (_mixed(place * _GOLDEN + seed) & 0xFFFF).int()
        bits = (part.view(torch.int32) + noise) & -0x10000
        rounded[start : start + CHUNK] = bits.view(torch.float32)  # exact: the low bits are 0
    return rounded.view_as(x)


def _mixed(z: Tensor) -> Tensor:
    """The finalizer of splitmix64 (Steele et al. 2014): int64 to int64 that look random."""
    z = (z ^ _shifted(z, 30)) * -4658895280553007687  # 0xBF58476D1CE4E5B9
    z = (z ^ _shifted(z, 27)) * -7723592293110705685  # 0x94D049BB133111EB
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, bits: int) -> Tensor:
    """To the right, with zeros from the left."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
