"""The order of rows is a permutation, whatever the size and the key."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ringshard.data.order import keyed, permute

SIZES = st.integers(1, 3000)
SEEDS = st.integers(-(2**40), 2**62)


@given(SIZES, SEEDS)
def test_every_position_goes_to_another_row(size: int, seed: int) -> None:
    image = permute(np.arange(size), size, keyed(seed, 0, 0))
    assert np.array_equal(np.sort(image), np.arange(size))


@given(SIZES, SEEDS, st.data())
def test_a_position_alone_goes_where_it_goes_among_others(
    size: int, seed: int, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, size - 1))
    together = permute(np.arange(size), size, keyed(seed, 0, 0))
    assert permute(np.array([position]), size, keyed(seed, 0, 0))[0] == together[position]


@given(st.integers(1, 200), SEEDS)
def test_keys_of_single_positions_equal_one_key_for_all(size: int, seed: int) -> None:
    epochs = np.repeat([3, 4], size)
    mixed = permute(np.tile(np.arange(size), 2), size, keyed(seed, epochs))
    apart = [permute(np.arange(size), size, keyed(seed, epoch)) for epoch in (3, 4)]
    assert np.array_equal(mixed, np.concatenate(apart))


def test_huge_sizes_take_no_memory() -> None:
    size = 2**52 + 1
    position = np.array([0, 1, size - 1])
    image = permute(position, size, keyed(7))
    assert ((image >= 0) & (image < size)).all() and len(set(image)) == 3


def test_epochs_seeds_and_corpora_have_different_orders() -> None:
    orders = {
        tuple(permute(np.arange(1000), 1000, keyed(*key)))
        for key in [(1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0), (-1, 0, 0)]
    }
    assert len(orders) == 5


def test_order_looks_random() -> None:
    size, orders = 40, 4000
    epochs = np.repeat(np.arange(orders), size)
    image = permute(np.tile(np.arange(size), orders), size, keyed(5, epochs)).reshape(orders, size)
    for place in (0, 17, 39):  # each row stands at each place equally often
        counts = np.bincount(image[:, place], minlength=size)
        chi_square = ((counts - orders / size) ** 2 / (orders / size)).sum()
        assert chi_square < 90  # 39 degrees of freedom: p < 1e-5
    following = (np.diff(image, axis=1) == 1).mean()  # neighbours that stay neighbours
    assert abs(following - 1 / size) < 0.003


def test_order_is_the_one_of_earlier_releases() -> None:
    assert permute(np.arange(8), 8, keyed(1, 0, 0)).tolist() == [5, 0, 6, 1, 3, 7, 4, 2]
