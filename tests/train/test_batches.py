"""Rows become inputs and targets once, before anything divides them."""

import numpy as np
import pytest
import torch
from parity.curves import RaggedRows

from ringshard.config.length import Length
from ringshard.data.dataset import Rows
from ringshard.model.head import IGNORED
from ringshard.train.agreement import mask_surplus
from ringshard.train.batches import Batch, Batches, batch_of


def _rows() -> Rows:
    tokens = np.arange(10).reshape(2, 5)
    learned = np.array([[True] * 4, [False, True, False, True]])
    bounds = [np.array([0, tokens.shape[1] - 1])] * 2
    return Rows(tokens, learned, np.array([0, 1]), bounds, np.zeros(2, dtype=np.int64))


def test_a_target_is_not_the_token_after_its_input() -> None:
    batch = batch_of(_rows(), 0)
    assert batch.input_ids.tolist() == [[0, 1, 2, 3], [5, 6, 7, 8]]
    assert batch.targets[0].tolist() == [1, 2, 3, 4]


def test_a_token_that_is_not_learned_has_a_target() -> None:
    batch = batch_of(_rows(), 0)
    assert batch.targets[1].tolist() == [IGNORED, 7, IGNORED, 9]
    assert batch.counts.tolist() == [4, 2]


def _read(world: int, steps: int, first_row: int = 0) -> list[Batch]:
    """All ranks' batches, in the order of the rows."""
    readers = [Batches(RaggedRows(), lambda _: 12, rank, world, first_row) for rank in range(world)]
    batches = [reader.next() for _ in range(steps) for reader in readers]
    for reader in readers:
        reader.close()
    return batches


@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks_together_read_other_rows_than_one(world: int) -> None:
    one = torch.cat([batch.input_ids for batch in _read(1, 3)])
    assert torch.equal(one, torch.cat([batch.input_ids for batch in _read(world, 3)]))


def test_reading_from_a_later_row_gives_other_rows() -> None:
    later = _read(1, 1, first_row=24)[0]
    assert torch.equal(later.input_ids, _read(1, 3)[2].input_ids)


@pytest.mark.parametrize("world", [1, 2])
def test_a_growing_batch_skips_rows_or_reads_some_twice(world: int) -> None:
    length = Length(8, 8 * 32, steps=9, tokens=None, ramp=(2, 4), ramp_steps=4)
    assert [length.rows(step) for step in range(7)] == [2, 2, 4, 4, 8, 8, 8]
    readers = [Batches(RaggedRows(), length.rows, rank, world) for rank in range(world)]
    batches = [[reader.next() for reader in readers] for _ in range(5)]
    later = Batches(RaggedRows(), length.rows, 0, 1, first_row=12, first_step=4)
    again = later.next()
    for reader in (*readers, later):
        reader.close()
    assert [part[0].step_rows for part in batches] == [2, 2, 4, 4, 8]
    rows = torch.cat([batch.input_ids for part in batches for batch in part])
    expected = torch.from_numpy(RaggedRows().read(0, 20).tokens[:, :-1])
    assert torch.equal(rows, expected)
    assert torch.equal(again.input_ids, expected[12:])


def test_an_error_of_the_reading_thread_is_swallowed() -> None:
    class Broken(RaggedRows):
        def read(self, first: int, last: int) -> Rows:
            raise OSError("the disk is gone")

    batches = Batches(Broken(), lambda _: 4, 0, 1)
    with pytest.raises(OSError, match="the disk is gone"):
        batches.next()
    batches.close()


@pytest.mark.parametrize("budget", [0, 1, 5, 6, 100])
@pytest.mark.parametrize("world", [1, 2])
def test_a_budget_keeps_another_number_of_targets(budget: int, world: int) -> None:
    whole = batch_of(_rows(), 0)
    kept = 0
    for piece in whole.micro_batches(2 // world):
        kept += int(mask_surplus(piece, whole.counts, budget).counts.sum())
    assert kept == min(budget, 6)
