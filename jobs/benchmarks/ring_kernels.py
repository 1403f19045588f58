"""Numbers of each ring kernel against attention written out in fp64, and its memory on a GPU.

Runs on a GPU if there is one, else on CPU. An error is the largest difference over the largest
number. Blocks are called as a ring calls them: stored token by token, into sums of fp32.
"""

from typing import Any

import torch
from benchmarks.ring_emulated import Shape, tensors
from torch import Tensor

from ringshard.parallel.ring.blocks import blocks_of
from ringshard.parallel.ring.kernels import KERNELS, Kernel
from ringshard.parallel.ring.plan import Segment

WIDE, SHORT = (torch.float32, torch.bfloat16), (torch.bfloat16,)
DTYPES = {
    "cpu": {"cpu_flash": WIDE, "math_packed": WIDE},
    "cuda": {"cuda_flash": SHORT, "cuda_cudnn": SHORT, "cuda_efficient": WIDE, "math_packed": WIDE},
}
"""What is measured on each device; `math_packed` shows what rounding alone comes to."""
Results = dict[str, Tensor]


def run() -> list[dict[str, Any]]:
    """One row per kernel, format and kind of block."""
    return measured("cuda", 4096) if torch.cuda.is_available() else measured("cpu", 512)


def measured(device: str, length: int) -> list[dict[str, Any]]:
    """The rows for sequences of `length` tokens."""
    return [
        _row(kernel, Shape(32, 8, 128, torch.device(device), dtype), block, length)
        for kernel, dtypes in DTYPES[device].items()
        for dtype in dtypes
        for block in blocks(length)
    ]


def blocks(n: int) -> dict[str, tuple[Segment, ...]]:
    """One segment, and several of uneven lengths; rectangles share keys and leave some out."""
    a, b = n // 8 + 1, n // 2 + 3
    squares = [Segment(0, 0, 1, q0, q1, q0, q1, 1) for q0, q1 in ((0, a), (a, b), (b, n))]
    return {
        "causal, dense": (Segment(0, 0, 1, 0, n, 0, n, 1),),
        "causal, packed": tuple(squares),
        "rectangle, dense": (Segment(1, 0, 1, 0, n, 1, b, 0),),
        "rectangle, packed": (Segment(1, 0, 1, 0, b, 1, n - a, 0), Segment(1, 0, 1, b, n, a, n, 0)),
    }


def _row(kernel: str, shape: Shape, block: str, length: int) -> dict[str, Any]:
    given, segments = tensors(length, shape, 0), blocks(length)[block]
    wanted = _written_out(given, segments)
    if on_gpu := shape.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
    found = _pass(KERNELS[kernel], given, segments)
    peak = (torch.cuda.max_memory_allocated() - held) / 2**20 if on_gpu else None
    sums = sum(t.nbytes for t in found.values()) / 2**20
    return {
        "kernel": kernel,
        "format": str(shape.dtype).removeprefix("torch."),
        "block": f"{block}, {length} tokens",
        **{name: _error(found[name], wanted[name]) for name in wanted},
        "peak_mib": peak,
        "of_it_fp32_sums_mib": sums,
    }


def _error(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


def _written_out(given: list[Tensor], segments: tuple[Segment, ...]) -> Results:
    """In fp64, and one key head after another: the scores of all would fill a GPU."""
    by_head = [t.double().chunk(given[1].shape[1], dim=1) for t in given]
    parts = [_pass(KERNELS["math"], list(head), segments) for head in zip(*by_head, strict=True)]
    return {name: torch.cat([part[name] for part in parts], dim=1) for name in parts[0]}


def _pass(kernel: Kernel, given: list[Tensor], segments: tuple[Segment, ...]) -> Results:
    """Forward and backward of one step into the sums of a ring: out, lse, dq, dk, dv."""
    q, k, v, dout = given
    out, dq, dk, dv = map(_zeros, (dout, q, k, v))
    lse = _zeros(q[..., 0]).fill_(-torch.inf)
    scale = q.shape[-1] ** -0.5
    for block in blocks_of(kernel, segments, scale, q.shape[2], q.device):
        block.forward(q, k, v, out, lse)
    for block in blocks_of(kernel, segments, scale, q.shape[2], q.device):
        block.backward(dout, q, k, v, out.to(q.dtype), lse, (dq, dk, dv))
    return {"out": out, "lse": lse, "dq": dq, "dk": dk, "dv": dv}


def _zeros(t: Tensor) -> Tensor:
    """(B, H, S, …) in fp32 or fp64, stored as (B, S, H, …)."""
    wide = torch.promote_types(t.dtype, torch.float32)
    return torch.zeros_like(t.transpose(1, 2), dtype=wide).transpose(1, 2)


if __name__ == "__main__":
    for row in run():
        print(row)
