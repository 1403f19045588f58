"""C1 over sequences that are cut: a ring of any size, any layout, packed or not, trains as one
process, and as torch's own attention on each document by itself."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from parity.curves import (
    DOCUMENTS,
    VOCAB,
    Curve,
    PackedRows,
    RaggedRows,
    RowsApart,
    Topology,
    assert_equal_curves,
    job,
    train,
    train_job,
)
from ranks import run_ranks
from torch import Tensor

from ringshard.config.schema.debug import Debug
from ringshard.config.schema.parallelism import (
    ActivationCheckpoint,
    Attention,
    CpLayout,
    CpTransport,
    Parallelism,
)
from ringshard.config.schema.precision import Dtype, Precision
from ringshard.parallel import mesh as meshes
from ringshard.train.batches import Batch, batch_of
from ringshard.train.network import model_on
from ringshard.train.pieces import Cutter

ONE = Topology()
CP2 = Topology(2, Parallelism(cp=2))
CP4 = Topology(4, Parallelism(cp=4))
FSDP_RING = Topology(4, Parallelism(cp=2))
FIRST_TOKENS = RaggedRows(learned_before=4)
"""Of which the second rank of a ring, in the middle of a zigzag, has none."""


assert_equal = functools.partial(assert_equal_curves, weights=1e-4)


@functools.cache
def reference(rows: RaggedRows, model: str = "llama") -> Curve:
    return train(ONE, model, rows)


@pytest.mark.rotated(3)
@pytest.mark.parametrize(
    "topology",
    [
        pytest.param(CP2, id="cp-2", marks=pytest.mark.daily),
        pytest.param(CP4, id="cp-4", marks=pytest.mark.daily),
        pytest.param(FSDP_RING, id="fsdp-2-cp-2", marks=pytest.mark.daily),
        pytest.param(
            Topology(4, Parallelism(dp_replicate=2, dp_shard=1, cp=2)), id="replicas-2-cp-2"
        ),
        pytest.param(
            Topology(8, Parallelism(dp_replicate=2, dp_shard=2, cp=2), micro_batch=2),
            id="replicas-2-fsdp-2-cp-2",
        ),
        pytest.param(
            Topology(4, Parallelism(dp_replicate=2, dp_shard=1, cp=2), micro_batch=2),
            id="replicas-2-cp-2-accumulation-4",
        ),
        pytest.param(replace(CP2, micro_batch=2), id="cp-2-accumulation-8"),
        pytest.param(
            Topology(2, Parallelism(cp=2, activation_checkpoint=ActivationCheckpoint.block)),
            id="cp-2-recompute",
        ),
        pytest.param(Topology(2, Parallelism(cp=2, cp_layout=CpLayout.balanced)), id="balanced"),
        pytest.param(
            Topology(
                2,
                Parallelism(
                    cp=2, cp_layout=CpLayout.contiguous, cp_transport=CpTransport.allgather
                ),
            ),
            id="contiguous-allgather",
        ),
    ],
)
def test_cutting_packed_rows_changes_the_curve(topology: Topology) -> None:
    assert_equal(reference(PackedRows()), train(topology, rows=PackedRows()))


@pytest.mark.parametrize("topology", [CP2, CP4], ids=["cp-2", "cp-4"])
@pytest.mark.parametrize("rows", [RaggedRows(), FIRST_TOKENS], ids=["ragged", "first-tokens"])
def test_cutting_rows_changes_the_curve(topology: Topology, rows: RaggedRows) -> None:
    """Of rows that learn but their first tokens, a rank has none that counts."""
    assert_equal(reference(rows), train(topology, rows=rows))


@pytest.mark.parametrize("model", ["gpt2", "qwen3_tied"])
def test_cutting_packed_rows_changes_the_curve_of_a_tied_model(model: str) -> None:
    assert_equal(reference(PackedRows(), model), train(FSDP_RING, model, PackedRows()))


@pytest.mark.parametrize("model", ["llama", "gpt2"])
def test_packed_documents_train_unlike_each_by_itself(model: str) -> None:
    """By torch's attention, which has never heard of documents; gpt2 has a table of positions."""
    apart = job(replace(ONE, micro_batch=8 * DOCUMENTS), model, global_batch=16 * DOCUMENTS)
    apart.parallelism = Parallelism(attention=Attention.sdpa)
    expected = train_job(1, apart, RowsApart())
    assert expected.losses[-1] < 0.85 * expected.losses[0]
    assert_equal(expected, reference(PackedRows(), model))


def test_ring_attention_on_one_process_trains_unlike_torchs() -> None:
    plain = Topology(parallelism=Parallelism(attention=Attention.sdpa))
    assert_equal(train(plain), reference(RaggedRows()))


def test_compiled_blocks_that_are_recomputed_take_another_curve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All but the code generator, which takes a minute on CPU."""
    in_no_code = functools.partialmethod(torch.nn.Module.compile, backend="aot_eager")
    monkeypatch.setattr(torch.nn.Module, "compile", in_no_code)
    parallelism = Parallelism(cp=2, activation_checkpoint=ActivationCheckpoint.block, compile=True)
    assert_equal(reference(PackedRows()), train(Topology(2, parallelism), rows=PackedRows()))


def test_a_ring_in_bf16_is_far_from_one_process() -> None:
    """Outside C1: rounded to 8 bits, merged blocks may differ from one, but not by much."""
    exact, rounded, ring = (job(topology, steps=8) for topology in (ONE, ONE, CP2))
    rounded.precision = ring.precision = Precision(compute=Dtype.bf16)
    wide, one, two = (
        train_job(world, config, PackedRows())
        for world, config in ((1, exact), (1, rounded), (2, ring))
    )
    np.testing.assert_allclose(two.losses, one.losses, rtol=2e-3)
    np.testing.assert_allclose(two.norms, one.norms, rtol=2e-2)
    np.testing.assert_allclose(two.losses, wide.losses, rtol=5e-3)
    assert two.losses != wide.losses


def test_ranks_that_share_rows_read_others_unnoticed() -> None:
    """The comparison finds nothing where they do, and names the ranks where not."""
    compared, plain = job(CP2, steps=3), job(CP2, steps=3)
    compared.debug = Debug(compare_rows=True)
    found, expected = (train_job(2, config, PackedRows()) for config in (compared, plain))
    assert found.losses == expected.losses
    with pytest.raises(RuntimeError, match=r"ranks 0 and 1 share a sequence but not its tokens"):
        run_ranks(2, _cut_other_rows)


def _cut_other_rows() -> None:
    config = job(CP2)
    config.debug = Debug(compare_rows=True)
    mesh = meshes.build(config.parallelism, torch.device("cpu"))
    row = 2 * mesh.rank
    Cutter.of(config, mesh.ring).cut(batch_of(RaggedRows().read(row, row + 1), 0))


def _losses(world: int, row: int, token: int) -> Tensor:
    """Loss of each token (2, S) of two rows, one token of which was changed (token < 0: none)."""
    parts = run_ranks(world, _own_losses, row, token)
    losses, places = (torch.cat(column) for column in zip(*parts, strict=True))
    return losses[places.argsort()].view(2, -1)


def _own_losses(row: int, token: int) -> tuple[Tensor, Tensor]:
    """As in evaluation: losses of this rank's tokens, and where they stand in the batch."""
    world = torch.distributed.get_world_size()
    config = job(Topology(world, Parallelism(cp=world)))
    mesh = meshes.build(config.parallelism, torch.device("cpu"))
    model, cutter = model_on(mesh, config, VOCAB), Cutter.of(config, mesh.ring)
    rows = PackedRows().read(3, 5)
    rows.loss_mask[:] = True
    if token >= 0:
        rows.tokens[row, token] = (rows.tokens[row, token] + 7) % VOCAB
    batch = batch_of(rows, 0)
    piece, places = cutter.cut(batch), cutter.cut(_numbered(batch))
    with torch.no_grad():
        _, losses, _ = model(piece.input_ids, targets=piece.targets, **piece.context)
    real = places.targets.flatten() >= 0  # not what was added to make the length even
    return losses[real], places.targets.flatten()[real]


def _numbered(batch: Batch) -> Batch:
    """Each target its own place in the batch."""
    return replace(batch, targets=torch.arange(batch.targets.numel()).view_as(batch.targets))


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("document", [0, 1, 2])
def test_a_document_feels_another_ones_tokens(world: int, document: int) -> None:
    """Bitwise: a token that changes changes the losses of its document from itself on, and the loss
    of the one before it, which predicts it."""
    edges = PackedRows().bounds(4)
    start, end = edges[document : document + 2]
    token = int(start + end) // 2
    same = _losses(world, 1, -1) == _losses(world, 1, token)
    assert same[0].all() and same[1, : max(token - 1, 0)].all() and same[1, end:].all()
    assert not same[1, token:end].any()
