"""Memory of a training step against cp, and the longest sequence within a fixed memory.

The model is wide and has one small head, so that long sequences take memory rather than time.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from benchmarks.process_memory import forget_peak, held
from ranks import run_ranks

from ringshard.config.schema.data import Data
from ringshard.config.schema.job import Job
from ringshard.config.schema.model import Model
from ringshard.config.schema.parallelism import Parallelism
from ringshard.data.dataset import Rows
from ringshard.parallel import mesh as meshes
from ringshard.train.batches import batch_of
from ringshard.train.network import model_on
from ringshard.train.pieces import Cutter
from ringshard.train.step import forward_backward

MODEL = Model(
    type="llama",
    config={
        "hidden_size": 256,
        "intermediate_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "max_position_embeddings": 1 << 20,
    },
)
VOCAB = 257
RANKS = (1, 2, 4)
BUDGET_GIB = 2.0
GRAIN = 1024


def run() -> list[dict[str, Any]]:
    """Activations of a rank over those of one, and the longest sequences.

    What a token adds is taken from two lengths: weights and gradients are the same in both.
    """
    lines = {ranks: _line(ranks) for ranks in RANKS}
    return [*_against_cp(lines), *_longest(lines)]


def _line(ranks: int) -> tuple[float, float]:
    """Memory of a rank as a line: at no token [GiB], and what a token of the sequence adds."""
    lengths = [4096 * ranks, 12_288 * ranks]
    low, high = (max(_peaks(ranks, length)) for length in lengths)
    per_token = (high - low) / (lengths[1] - lengths[0])
    return low - lengths[0] * per_token, per_token


def _against_cp(lines: dict[int, tuple[float, float]]) -> Iterator[dict[str, Any]]:
    for ranks, (_, per_token) in lines.items():
        yield {
            "measure": "activations of a rank × cp / those of one",
            "case": f"{ranks} ranks",
            "value": round(per_token * ranks / lines[1][1], 4),
            "against": f"{per_token * 2**20:.1f} KiB for each token of the sequence",
        }


def _longest(lines: dict[int, tuple[float, float]]) -> Iterator[dict[str, Any]]:
    """The line says which length fills the budget; that one is then tried."""
    for ranks, (at_none, per_token) in lines.items():
        length = int((BUDGET_GIB - at_none) / per_token) // GRAIN * GRAIN
        while (total := max(_peaks(ranks, length))) > BUDGET_GIB:
            length -= GRAIN
        yield {
            "measure": f"longest sequence in {BUDGET_GIB:g} GiB a rank [tokens]",
            "case": f"{ranks} ranks",
            "value": float(length),
            "against": f"{total:.2f} GiB, with Python and torch",
        }


def _peaks(ranks: int, length: int) -> list[float]:
    """The most each rank held in a step [GiB]."""
    return run_ranks(ranks, _step, ranks, length)


def _step(ranks: int, length: int) -> float:
    job = Job(model=MODEL, data=Data(seq_len=length), parallelism=Parallelism(cp=ranks))
    job.parallelism.dp_shard = 1
    mesh = meshes.build(job.parallelism, torch.device("cpu"))
    model, cutter = model_on(mesh, job, VOCAB), Cutter.of(job, mesh.ring)
    tokens = np.random.default_rng(0).integers(0, VOCAB, (1, length + 1))
    mask, none, bounds = np.ones((1, length), bool), np.zeros(1, int), [np.array([0, length])]
    rows = Rows(tokens, mask, none, bounds, none)
    piece = cutter.cut(batch_of(rows, 0))
    forget_peak()
    forward_backward(model, [piece], length, mesh.device)
    return held("VmHWM") / 2**30
