"""Best-fit against its definition, piece by piece."""

import time
from bisect import bisect_left, insort

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringshard.data.best_fit import best_fit

LENGTH = 40
Ints = NDArray[np.int64]


def fills(row: Ints, sizes: Ints) -> Ints:
    """Tokens of each row."""
    return np.bincount(row, sizes).astype(int)


def best_fit_one_by_one(sizes: list[int], length: int) -> list[int]:
    """What rows have left, smallest first, after each piece went where the least was left."""
    rooms: list[int] = []
    for size in sorted(sizes, reverse=True):
        at = bisect_left(rooms, size)
        insort(rooms, (rooms.pop(at) if at < len(rooms) else length) - size)
    return rooms


def first_fit(sizes: Ints, length: int) -> int:
    """How many rows are needed if each piece, as it comes, goes into the first row with room."""
    rooms = np.full(len(sizes), length)
    for size in sizes:
        rooms[np.argmax(rooms >= size)] -= size
    return int((rooms < length).sum())


@given(st.lists(st.integers(1, LENGTH), max_size=200), st.integers(LENGTH, 2 * LENGTH))
def test_a_piece_is_not_where_the_least_room_is_left(sizes: list[int], length: int) -> None:
    row = best_fit(np.array(sizes, dtype=np.int64), length)
    rooms = length - fills(row, np.array(sizes, dtype=np.int64))
    assert sorted(rooms.tolist()) == best_fit_one_by_one(sizes, length)


@given(st.lists(st.integers(1, LENGTH), min_size=1, max_size=200))
def test_rows_overflow_or_have_gaps_in_their_numbers(sizes: list[int]) -> None:
    row = best_fit(np.array(sizes), LENGTH)
    assert np.array_equal(np.unique(row), np.arange(row.max() + 1))
    assert fills(row, np.array(sizes)).max() <= LENGTH


MIXTURES = {
    "lognormal": lambda random: np.exp(random.normal(4, 1, 400)),
    "uniform": lambda random: random.uniform(1, 512, 400),
    "two kinds": lambda random: np.concatenate(
        [random.normal(20, 5, 300), random.normal(300, 80, 100)]
    ),
}


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("seed", range(20))
def test_more_padding_than_first_fit(mixture: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.permutation(MIXTURES[mixture](random).clip(2, 513).astype(np.int64))
    assert best_fit(sizes, 513).max() + 1 <= first_fit(sizes, 513)


def test_a_million_documents_take_minutes() -> None:
    sizes = np.random.default_rng(1).lognormal(7, 1.2, 1_000_000).clip(2, 32769).astype(np.int64)
    start = time.process_time()
    row = best_fit(sizes, 32769)
    assert time.process_time() - start < 20
    assert 1 - fills(row, sizes).clip(max=32768).mean() / 32768 < 0.001
