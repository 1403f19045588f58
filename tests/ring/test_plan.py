"""Plans: every pair of a query and a key of its document, once, and no other."""

import time

import numpy as np
import torch
from hypothesis import given, settings
from ring.packs import cut_rows, lognormal

from ringshard.parallel.ring.documents import Ints, bounds_of_lengths, document_of
from ringshard.parallel.ring.layout import Layout, balanced, contiguous, zigzag
from ringshard.parallel.ring.plan import Plan, build_plan, predict_work


def computed(layout: Layout, rows: list[Ints], rank: int) -> np.ndarray:
    """How often the plan of `rank` computes each pair (rows, local queries, keys)."""
    times = np.zeros((len(rows), layout.local_length, layout.length), dtype=int)
    for segment in build_plan(layout, rows, rank).segments:
        keys = layout.tokens((rank - segment.step) % layout.cp)[segment.k0 : segment.k1].numpy()
        queries = slice(segment.q0, segment.q1)
        shape = (segment.q1 - segment.q0, len(keys))
        block = np.tri(*shape, dtype=int) if segment.causal else np.ones(shape, dtype=int)
        for row in range(segment.row0, segment.row1):
            times[row, queries, keys[0] : keys[-1] + 1][:, keys - keys[0]] += block
    return times


def wanted(layout: Layout, bounds: Ints, rank: int) -> np.ndarray:
    """The mask (local queries, keys): causal, in one document."""
    queries, keys = layout.tokens(rank).numpy(), np.arange(layout.length)
    document = document_of(bounds, keys)
    return (keys <= queries[:, None]) & (document == document[queries][:, None])


@settings(max_examples=150, deadline=None)
@given(cut_rows())
def test_segments_are_the_brute_force_mask(case: tuple[Layout, list[Ints]]) -> None:
    layout, rows = case
    work = predict_work(layout, rows)
    for rank in range(layout.cp):
        masks = np.stack([wanted(layout, bounds, rank) for bounds in rows])
        assert (computed(layout, rows, rank) == masks).all()
        plan = build_plan(layout, rows, rank)
        pairs = [sum(segment.pairs for segment in plan.at(step)) for step in range(layout.cp)]
        assert pairs == work[rank].tolist()


@settings(max_examples=75, deadline=None)
@given(cut_rows())
def test_what_kernels_rely_on(case: tuple[Layout, list[Ints]]) -> None:
    layout, rows = case
    for rank in range(layout.cp):
        plan = build_plan(layout, rows, rank)
        assert (np.diff(plan.table[:, 0]) >= 0).all()
        first = np.zeros((len(rows), layout.local_length), dtype=int)
        for s in plan.segments:
            assert s.q1 > s.q0 and s.k1 > s.k0, "an empty block kills the process"
            assert s.causal == (s.step == 0)
            if s.causal:
                assert (s.q0, s.q1) == (s.k0, s.k1), "only squares are causal"
                first[s.row0 : s.row1, s.q0 : s.q1] += 1
        assert (first == 1).all(), "step 0 writes each query once"


def test_one_document_is_the_classic_zigzag() -> None:
    layout, rows = zigzag(32, 4), [bounds_of_lengths([32])] * 3
    segments = build_plan(layout, rows, 1).segments
    assert [tuple(s) for s in segments] == [
        (0, 0, 3, 0, 8, 0, 8, 1),  # own tokens: causal
        (1, 0, 3, 0, 8, 0, 4, 0),  # rank 0's: all queries, its head
        (2, 0, 3, 4, 8, 0, 8, 0),  # rank 3's: the tail's queries, all of its keys
        (3, 0, 3, 4, 8, 0, 8, 0),
    ]


def test_different_rows_have_their_own_segments() -> None:
    layout = contiguous(8, 2)
    rows = [bounds_of_lengths(lengths) for lengths in ([8], [8], [4, 4], [8])]
    segments = build_plan(layout, rows, 1).segments
    assert [(s.step, s.row0, s.row1) for s in segments] == [
        (0, 0, 2), (0, 2, 3), (0, 3, 4), (1, 0, 2), (1, 3, 4),
    ]  # fmt: skip


def test_a_tensor_brings_the_plan_back() -> None:
    rows = [lognormal(1024, 40)]
    plan = build_plan(balanced(rows, 4), rows, 2)
    tensor = plan.to_tensor()
    assert tensor.dtype == torch.int64 and tensor.shape == (len(plan.segments), 8)
    assert Plan.from_tensor(tensor).segments == plan.segments


def test_thousands_of_documents_take_milliseconds() -> None:
    rows = [lognormal(2**20, 130)]
    assert len(rows[0]) > 4000
    layout = balanced(rows, 64)
    best = 1.0
    for _ in range(5):
        start = time.perf_counter()
        layout = balanced(rows, 64)
        build_plan(layout, rows, 3)
        predict_work(layout, rows)
        best = min(best, time.perf_counter() - start)
    assert best < 0.1, f"{best:.3f} s"
