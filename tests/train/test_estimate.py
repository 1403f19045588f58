"""What a run says before its first step."""

import ctypes
import sys
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from parity.curves import MODELS, VOCAB, PackedRows, RaggedRows, Topology, job
from ranks import run_ranks
from ring.packs import lognormal

from ringshard.config.schema.parallelism import (
    ActivationCheckpoint,
    CpLayout,
    CpTransport,
    Parallelism,
)
from ringshard.data.dataset import Rows
from ringshard.model.describe import describe_built
from ringshard.parallel import mesh as meshes
from ringshard.train.batches import batch_of
from ringshard.train.estimate import documents, kept_forward, to_come_gib
from ringshard.train.network import model_on
from ringshard.train.pieces import Cutter


def test_documents_are_not_those_that_something_is_learned_of() -> None:
    rows = PackedRows().read(0, 40)
    expected = [
        int(end - start)
        for mask, bounds in zip(rows.loss_mask, rows.bounds, strict=True)
        for start, end in pairwise(bounds[:3])  # the third is padding
        if mask[start:end].sum()
    ]
    assert documents(PackedRows(), 40, 29) == expected
    assert documents(RaggedRows(learned_before=0), 40, 32) == [32]


def _told_and_done(asked: CpTransport, documents: str) -> tuple[str, str, float]:
    """What is told of the first rows; transport and imbalance of the piece that is made of them."""
    length = 8192
    bounds = {"long": np.array([0, length]), "short": lognormal(length, 500)}[documents]
    config = job(Topology(parallelism=Parallelism(cp=4, cp_transport=asked)))
    config.parallelism.cp_layout = CpLayout.balanced
    mesh = meshes.build(config.parallelism, torch.device("cpu"))
    none, learned = np.zeros(1, dtype=np.int64), np.ones((1, length), bool)
    rows = Rows(np.ones((1, length + 1), dtype=np.int64), learned, none, [bounds], none)
    cutter = Cutter.of(config, mesh.ring)
    piece = cutter.cut(batch_of(rows, 0))
    assert piece.state is not None
    return cutter.described(rows.bounds), piece.state.transport, piece.imbalance


@pytest.mark.parametrize(
    ("asked", "documents", "expected"),
    [
        (CpTransport.auto, "long", "ring"),
        (CpTransport.auto, "short", "allgather"),
        (CpTransport.ring, "short", "ring"),
        (CpTransport.allgather, "long", "allgather"),
    ],
)
def test_another_transport_is_told_than_keys_take(
    asked: CpTransport, documents: str, expected: str
) -> None:
    for told, transport, imbalance in run_ranks(4, _told_and_done, asked, documents):
        assert transport == expected
        assert told.startswith(f"balanced layout, {transport} transport")
        assert ("(auto" in told) == (asked is CpTransport.auto)
        assert f" {imbalance:.2f} × " in told


SIZES = {"hidden_size": 128, "intermediate_size": 384}
LOCAL = 4096
"""Tokens of a rank."""


def _memory(cp: int, layers: int, recompute: ActivationCheckpoint) -> tuple[float, float, float]:
    """Numbers of a token that this rank holds after a forward pass, and the estimate of it; the
    peak of the backward pass over its estimate."""
    linux = import_module("benchmarks.process_memory")
    trim, length = ctypes.CDLL("libc.so.6").malloc_trim, LOCAL * cp
    parallelism = Parallelism(cp=cp, dp_shard=1, activation_checkpoint=recompute)
    config = job(Topology(parallelism=parallelism, micro_batch=1), global_batch=1)
    config.data.seq_len, sizes = length, MODELS["llama"].config | SIZES
    config.model = replace(config.model, config=sizes | {"num_hidden_layers": layers})
    mesh = meshes.build(config.parallelism, torch.device("cpu"))
    model, cutter = model_on(mesh, config, VOCAB), Cutter.of(config, mesh.ring)
    none, learned = np.zeros(1, dtype=np.int64), np.ones((1, length), bool)
    bounds = np.arange(0, length + 1, 512)
    piece = cutter.cut(
        batch_of(Rows(np.ones((1, length + 1), int), learned, none, [bounds], none), 0)
    )
    trim(0)
    before = linux.held("VmRSS")
    loss, *_ = model(piece.input_ids, targets=piece.targets, **piece.context)
    trim(0)
    forward = linux.held("VmRSS") - before
    linux.forget_peak()
    loss.backward()
    peak = (linux.held("VmHWM") - before) / 2**30
    description = describe_built(model)
    return (
        forward / (4 * LOCAL),
        kept_forward(config, description),
        peak / to_come_gib(config, mesh, description),
    )


@pytest.mark.parametrize("cp", [1, 2])
@pytest.mark.parametrize("recompute", list(ActivationCheckpoint), ids=lambda way: str(way.name))
def test_a_step_takes_other_memory_than_estimated(
    recompute: ActivationCheckpoint, cp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What layers keep is taken from two depths, for the head keeps something as well. At its peak
    the allocator of a CPU holds more than is used."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2] / "jobs")])
    shallow, deep = (run_ranks(cp, _memory, cp, layers, recompute) for layers in (2, 8))
    for (few, few_told, few_peak), (many, many_told, many_peak) in zip(shallow, deep, strict=True):
        assert many - few == pytest.approx(many_told - few_told, rel=0.2)
        assert 0.75 < few_peak < 1.6 and 0.75 < many_peak < 1.6
