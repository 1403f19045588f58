"""Time and memory of the chunked head against plain cross-entropy and torch's own chunked one."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ringshard.model.head import chunked_cross_entropy

CASES = [(2048, 50_000, 256, 256), (1024, 257, 128, 1024)]
"""(tokens, vocabulary, width, chunk)."""
ROUNDS = 7


def run() -> list[dict[str, Any]]:
    """One row per case and contender: seconds (best round), peak memory [MB], both also over ours.

    The contenders take turns, and the best round counts: what else runs only makes it slower.
    """
    return [row for case in CASES for row in _rows(*case)]


def _rows(tokens: int, vocabulary: int, width: int, chunk: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, width, generator=generator).requires_grad_()
    weight = torch.randn(vocabulary, width, generator=generator).mul_(0.02).requires_grad_()
    targets = torch.randint(vocabulary, (tokens,), generator=generator)
    contenders = _contenders(chunk)
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(1 + ROUNDS):
        for name, loss in contenders.items():
            measured[name].append(_measure(lambda f=loss: f(hidden, weight, targets).backward()))
            hidden.grad = weight.grad = None
    best = {
        name: [min(column) for column in zip(*rounds[1:], strict=True)]
        for name, rounds in measured.items()
    }
    ours = best["ringshard"]
    return [
        {
            "case": f"{tokens} tokens × {vocabulary} words × {width}",
            "contender": name,
            "seconds": round(seconds, 4),
            "peak_mb": round(peak, 1),
            "seconds_over_ours": round(seconds / ours[0], 2),
            "peak_over_ours": round(peak / ours[1], 2) if ours[1] else None,
        }
        for name, (seconds, peak) in best.items()
    ]


def _contenders(chunk: int) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    found: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        "ringshard": lambda h, w, t: chunked_cross_entropy(h, w, None, t, chunk)[0],
        "plain": lambda h, w, t: F.cross_entropy(h @ w.T, t, reduction="sum"),
    }
    if hasattr(F, "linear_cross_entropy"):  # torch 2.13
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=chunk)
        found["torch chunked"] = lambda h, w, t: F.linear_cross_entropy(
            h, w, t, reduction="sum", options=options
        )
    return found


def _measure(step: Callable[[], None]) -> tuple[float, float]:
    """Seconds of one step, and how far it raised the resident memory [MB] (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before, start = _memory_mb("VmRSS"), time.perf_counter()
    step()
    return time.perf_counter() - start, _memory_mb("VmHWM") - before


def _memory_mb(field: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1e3


if __name__ == "__main__":
    for row in run():
        print(row)
