"""What a run says before its first step."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from parity.curves import PackedRows, RaggedRows, Topology, job
from ranks import run_ranks
from ring.packs import lognormal

from ringshard.config.schema.parallelism import CpLayout, CpTransport, Parallelism
from ringshard.data.dataset import Rows
from ringshard.parallel import mesh as meshes
from ringshard.train.batches import batch_of
from ringshard.train.estimate import documents
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
