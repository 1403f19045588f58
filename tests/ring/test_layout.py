"""Layouts: each token in one place, and back; work dealt evenly."""

import numpy as np
import pytest
import torch
from ring.packs import lognormal

from ringshard.parallel.ring.documents import (
    bounds_of_ids,
    bounds_of_lengths,
    bounds_of_positions,
    padded,
    pairs_before,
    positions_of,
)
from ringshard.parallel.ring.layout import (
    CHUNKS_PER_RANK,
    LAYOUTS,
    Layout,
    balanced,
    contiguous,
    pad_to,
    padded_length,
    zigzag,
)
from ringshard.parallel.ring.plan import choose_transport, imbalance, lock_step_cost, predict_work
from ringshard.parallel.ring.share import hop_in_pairs


def layout_of(name: str, true_length: int, cp: int) -> Layout:
    length = padded_length(true_length, cp, CHUNKS_PER_RANK[name])
    return LAYOUTS[name]([padded(bounds_of_lengths([true_length]), length)], cp)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("cp", range(1, 9))
def test_parts_put_back_are_the_padded_sequence(name: str, cp: int) -> None:
    for true_length in (1, 2 * cp - 1, 2 * cp, 2 * cp + 1, 31, 97):
        layout = layout_of(name, true_length, cp)
        whole = pad_to(torch.arange(1, 2 * true_length + 1).view(2, true_length), layout.length, 0)
        parts = [layout.shard(whole, rank) for rank in range(cp)]
        assert all(part.shape == (2, layout.local_length) for part in parts)
        assert torch.equal(layout.unshard(parts), whole)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_local_sequence_is_in_global_order(name: str) -> None:
    layout = layout_of(name, 97, 4)
    for rank in range(4):
        assert (layout.tokens(rank).diff() > 0).all()
    assert torch.equal(
        torch.cat([layout.tokens(rank) for rank in range(4)]).sort().values,
        torch.arange(layout.length),
    )


def test_other_dimensions_are_cut_and_padded_as_well() -> None:
    layout, whole = zigzag(12, 3), torch.randn(3, 2, 10)  # (3, B, S), as positions of mrope are
    filled = pad_to(whole, 12, -1.0, dim=-1)
    assert (filled[..., 10:] == -1).all() and torch.equal(filled[..., :10], whole)
    parts = [layout.shard(filled, rank, dim=2) for rank in range(3)]
    assert torch.equal(layout.unshard(parts, dim=2), filled)
    assert pad_to(whole, 5, 0.0, dim=0).shape == (5, 2, 10)


def test_a_length_that_does_not_fit_is_refused_with_the_one_that_does() -> None:
    with pytest.raises(ValueError, match="pad to 12"):
        zigzag(11, 2)
    with pytest.raises(ValueError, match="pad it first"):
        zigzag(8, 2).shard(torch.zeros(1, 7), 0)
    with pytest.raises(ValueError, match="at least one token"):
        padded_length(0, 2, 2)
    with pytest.raises(ValueError, match="can't be padded"):
        padded(bounds_of_lengths([9]), 8)


@pytest.mark.parametrize("cp", range(1, 9))
def test_zigzag_shares_one_document_evenly_at_every_step(cp: int) -> None:
    work = predict_work(zigzag(24 * cp, cp), [bounds_of_lengths([24 * cp])])
    assert imbalance(work) == 1.0
    assert (work == work[:1]).all()


def test_contiguous_has_the_imbalance_of_theory() -> None:
    work = predict_work(contiguous(8 * 4096, 8), [bounds_of_lengths([8 * 4096])])
    assert imbalance(work) == pytest.approx((2 * 8 - 1) / 8, rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_balanced_shares_packed_documents_evenly(seed: int) -> None:
    rows = [lognormal(32768, 700, seed), lognormal(32768, 3000, seed + 100)]
    uneven = imbalance(predict_work(zigzag(32768, 8), rows))
    even = imbalance(predict_work(balanced(rows, 8), rows))
    assert even <= 1.15 < uneven


def test_auto_takes_the_ring_for_long_documents_and_all_gather_for_short_ones() -> None:
    one = bounds_of_lengths([32768])
    assert choose_transport(predict_work(zigzag(32768, 8), [one])) == "ring"
    short = bounds_of_lengths([512] * 64)
    work = predict_work(balanced([short], 8), [short])
    assert choose_transport(work) == "ring"  # no document crosses a chunk: a ring waits for nobody
    crossing = lognormal(32768, 2000)
    work = predict_work(balanced([crossing], 8), [crossing])
    assert lock_step_cost(work, "ring") > 1.1 * lock_step_cost(work, "allgather")
    assert choose_transport(work) == "allgather"
    assert choose_transport(predict_work(zigzag(8, 1), [bounds_of_lengths([8])])) == "ring"


def test_a_slow_link_makes_every_step_wait_for_its_hop() -> None:
    work = np.full((4, 4), 100)  # ranks, steps
    assert lock_step_cost(work, "ring", hop=50) == lock_step_cost(work, "ring") == 400
    assert lock_step_cost(work, "ring", hop=300) == 3 * 300 + 100
    assert lock_step_cost(work, "allgather", hop=30) == 400
    assert lock_step_cost(work, "allgather", hop=50) == 400 + 3 * 50 - 100


def test_a_hop_hides_where_theory_says() -> None:
    """bf16, 8 key heads for 32 query heads, 450 TFLOP/s over 300 GB/s: from 750 tokens a rank."""
    assert hop_in_pairs(750, 32, 8, 2, 450e12 / 300e9) == pytest.approx(750**2 / 2)


def test_bounds_from_lengths_positions_and_numbers_agree() -> None:
    bounds = bounds_of_lengths([3, 1, 0, 5])
    assert bounds.tolist() == [0, 3, 4, 9]
    positions = torch.from_numpy(positions_of(bounds))
    assert positions.tolist() == [0, 1, 2, 0, 0, 1, 2, 3, 4]
    assert bounds_of_positions(positions[None])[0].tolist() == bounds.tolist()
    numbers = torch.tensor([[7, 7, 7, 0, 2, 2, 2, 2, 2]])
    assert bounds_of_ids(numbers)[0].tolist() == bounds.tolist()
    assert padded(bounds, 12).tolist() == [0, 3, 4, 9, 12]
    assert bounds_of_positions(torch.tensor([[0]]))[0].tolist() == [0, 1]


def test_pairs_before_a_token_are_counted_as_one_by_one() -> None:
    bounds = bounds_of_lengths([3, 1, 5])
    each = np.concatenate([[0], np.cumsum(positions_of(bounds) + 1)])
    assert pairs_before(bounds, np.arange(10)).tolist() == each.tolist()
