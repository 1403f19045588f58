"""Kernels and merging of a ring on one device: W ranks in a loop, no messages, over one full call.

Runs on a GPU if there is one, else on CPU; the same code but for the kernel.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ringshard.parallel.ring.attention import ring_backward, ring_forward
from ringshard.parallel.ring.group import TIMEOUT, Ring, alone, name_ring
from ringshard.parallel.ring.kernels import KERNELS, choose_kernel
from ringshard.parallel.ring.layout import zigzag
from ringshard.parallel.ring.plan import build_plan
from ringshard.parallel.ring.transport import TRANSPORTS, RingGradients, by_head, message

ROUNDS = 3


@dataclass(frozen=True)
class Shape:
    """Heads of a layer, and where it is computed."""

    heads: int
    kv_heads: int
    width: int
    device: torch.device
    dtype: torch.dtype


CPU = Shape(8, 2, 64, torch.device("cpu"), torch.float32)
GPU = Shape(32, 8, 128, torch.device("cuda"), torch.bfloat16)


class Emulated:
    """A transport without messages: the keys and values of all ranks are at hand."""

    everyone: list[Tensor]

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def keys_values(self, k: Tensor, v: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """In the order of the ring."""
        yield k, v
        for step in range(1, self.ring.size):
            yield by_head(self.everyone[(self.ring.rank - step) % self.ring.size])

    def gradients(self) -> RingGradients:
        """Adds nothing up: the shares of a rank are its own work."""
        return RingGradients(alone())


def run() -> list[dict[str, Any]]:
    """One row per number of ranks and length: value, and what it is compared with."""
    shape, lengths = (GPU, (32_768, 131_072)) if torch.cuda.is_available() else (CPU, (4096,))
    TRANSPORTS["emulated"] = Emulated  # type: ignore[assignment]
    return [row for length in lengths for row in _rows(shape, length)]


def _rows(shape: Shape, length: int) -> Iterator[dict[str, Any]]:
    chosen = choose_kernel("auto", shape.device, shape.dtype)
    kernel = next(name for name, found in KERNELS.items() if found is chosen)
    one = _loop(1, length, shape)
    for ranks in (2, 4, 8):
        every = _loop(ranks, length, shape)
        yield {
            "measure": "emulated ring / one full call",
            "case": f"{ranks} ranks, {length} tokens, {kernel}, {shape.dtype}",
            "value": round(sum(every) / sum(one), 4),
            "against": f"forward {every[0] / one[0]:.3f}, backward {every[1] / one[1]:.3f}; one "
            f"full call {1e3 * one[0]:.1f} + {1e3 * one[1]:.1f} ms",
        }


def _loop(ranks: int, length: int, shape: Shape) -> tuple[float, float]:
    """Best seconds of a forward and of a backward pass of all ranks, one after another."""
    layout, row = zigzag(length, ranks), np.array([0, length], dtype=np.int64)
    given = [tensors(layout.local_length, shape, rank) for rank in range(ranks)]
    Emulated.everyone = [message(k, v) for _, k, v, _ in given]
    settings = [_settings(rank, ranks, build_plan(layout, [row], rank).to_tensor(), shape)
                for rank in range(ranks)]  # fmt: skip
    outputs = [ring_forward(*given[rank][:3], *settings[rank]) for rank in range(ranks)]

    def forward() -> None:
        for (q, k, v, _), setting in zip(given, settings, strict=True):
            ring_forward(q, k, v, *setting)

    def backward() -> None:
        for (q, k, v, dout), output, setting in zip(given, outputs, settings, strict=True):
            ring_backward(dout, q, k, v, *output, *setting)

    return _best(forward, shape.device), _best(backward, shape.device)


def _settings(rank: int, ranks: int, plan: Tensor, shape: Shape) -> tuple[Any, ...]:
    """The arguments of the operator after q, k and v, of a rank without process groups."""
    name = f"emulated-{rank}-of-{ranks}"
    name_ring(Ring(name, tuple(range(ranks)), rank, TIMEOUT))
    return plan, shape.width**-0.5, name, "emulated", "auto"


def tensors(length: int, shape: Shape, seed: int) -> list[Tensor]:
    """q, k, v and the gradient of the output of one rank, (1, H, S, D), stored token by token."""
    torch.manual_seed(seed)
    options: dict[str, Any] = {"device": shape.device, "dtype": shape.dtype}
    return [
        torch.randn(1, length, heads, shape.width, **options).transpose(1, 2)
        for heads in (shape.heads, shape.kv_heads, shape.kv_heads, shape.heads)
    ]


def _best(function: Callable[[], None], device: torch.device) -> float:
    """CPU seconds on CPU, seconds on a GPU."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    found = []
    for _ in range(1 + ROUNDS):
        start = clock()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append(clock() - start)
    return min(found[1:])


if __name__ == "__main__":
    for line in run():
        print(line)
