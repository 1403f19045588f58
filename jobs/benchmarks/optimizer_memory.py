"""Most memory a process takes to train, in bytes per parameter: weights, gradients, state, copies.

Resident memory as Linux counts it, of a process for each row; activations are next to nothing.
"""

import ctypes
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch
from benchmarks.process_memory import forget_peak, held
from ranks import run_ranks
from torch import nn

from ringshard.config.schema import optimizer as schema
from ringshard.optim import build, release
from ringshard.train.step import clip_gradients, update

WIDTH, MATRICES, STEPS = 512, 32, 2
"""8.4 M parameters; one matrix is a thirty-second of them."""
BUCKET = 2
"""Muon's: of two matrices, as the default one is a small part of a large model [MB]."""
M_MMAP_THRESHOLD = -3


def run() -> list[dict[str, Any]]:
    """One row per optimizer, format of weights, and whether gradients are released."""
    cases: list[tuple[schema.Optimizer, torch.dtype]] = [
        (schema.AdamW(), torch.float32),
        (schema.Muon(bucket_mb=BUCKET), torch.float32),
        (schema.MuonMona(bucket_mb=BUCKET), torch.float32),
        (schema.Lion(), torch.float32),
        (schema.Lion8bit(), torch.float32),
        (schema.AdamW(release_gradients=True), torch.float32),
        (schema.Lion8bit(release_gradients=True), torch.float32),
        (schema.AdamW(), torch.bfloat16),
        (schema.Lion8bit(), torch.bfloat16),
        (schema.Lion8bit(release_gradients=True), torch.bfloat16),
    ]
    if find_spec("torchao"):
        cases.insert(1, (schema.AdamW8bit(), torch.float32))
        cases.insert(2, (schema.AdamW4bit(), torch.float32))
    return [_row(*case) for case in cases]


def _row(config: schema.Optimizer, dtype: torch.dtype) -> dict[str, Any]:
    released = isinstance(config, schema.ByRole) and config.release_gradients
    (found,) = run_ranks(1, _measured, config, dtype)
    return {
        "optimizer": config.name,
        "weights": str(dtype).removeprefix("torch."),
        "gradients released": "yes" if released else "no",
        "state [B / parameter]": round(found["state"], 3),
        "peak [B / parameter]": round(found["peak"], 2),
        "peak [MB]": round(found["peak"] * WIDTH * WIDTH * MATRICES / 1e6),
    }


def _measured(config: schema.Optimizer, dtype: torch.dtype) -> dict[str, float]:
    torch.set_num_threads(1)
    # Freed tensors go back to the system at once.
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 16)
    _train(config, dtype, 8, 2)  # what libraries load is not counted
    forget_peak()
    before = held("VmRSS")
    state = _train(config, dtype, WIDTH, MATRICES)
    parameters = WIDTH * WIDTH * MATRICES
    return {"peak": (held("VmHWM") - before) / parameters, "state": state / parameters}


def _train(config: schema.Optimizer, dtype: torch.dtype, width: int, matrices: int) -> int:
    """Trains a few steps; bytes of optimizer state."""
    layers = [nn.Linear(width, width, bias=False, dtype=dtype) for _ in range(matrices)]
    model = nn.Sequential(*layers)
    optimizer = build(replace(config), model)
    releasing = release(config, optimizer, 1.0)
    for _ in range(STEPS):
        if releasing:
            releasing.begin(1e-4)
        model(torch.ones(1, width, dtype=dtype)).float().square().mean().backward()
        if releasing:
            releasing.finish()
        else:
            update(optimizer, 1e-4, clip_gradients(model, 1.0))
    return sum(_bytes(tensor) for state in optimizer.state.values() for tensor in state.values())


def _bytes(tensor: torch.Tensor) -> int:
    """Also of torchao's, which hold codes and scales."""
    parts = [v for v in vars(tensor).values() if isinstance(v, torch.Tensor)]
    return sum(map(_bytes, parts)) if parts else tensor.numel() * tensor.element_size()
