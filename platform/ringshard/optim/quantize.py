"""Rows of numbers as signed bytes, each block of a row with one scale."""

import torch
from torch import Tensor

BLOCK = 256
"""Numbers that share a scale."""


def blocks_of(columns: int) -> int:
    """Scales of a row."""
    return -(-columns // BLOCK)


def quantized(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes int8 (…, n) and scales fp32 (…, ⌈n / BLOCK⌉): the nearest of 255 equal steps between
    ∓ the largest number of a block. Blocks don't cross rows, so that rows can be sharded."""
    blocks = _in_blocks(x)
    scales = blocks.abs().amax(-1) / 127
    codes = (blocks / scales.clamp(min=torch.finfo(x.dtype).tiny)[..., None]).round()
    return codes.flatten(-2)[..., : x.shape[-1]].to(torch.int8), scales


def dequantized(codes: Tensor, scales: Tensor) -> Tensor:
    """fp32 (…, n)."""
    numbers = _in_blocks(codes.float()) * scales[..., None]
    return numbers.flatten(-2)[..., : codes.shape[-1]]


def _in_blocks(x: Tensor) -> Tensor:
    columns = x.shape[-1]
    padded = torch.nn.functional.pad(x, (0, blocks_of(columns) * BLOCK - columns))
    return padded.view(*x.shape[:-1], blocks_of(columns), BLOCK)
