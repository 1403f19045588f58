"""Rows are divided among corpora exactly, and nobody counts."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringshard.data.mixture import assign, shares
from ringshard.errors import ConfigError

WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=5)


def named(weights: list[float]) -> dict[str, float]:
    return {f"c{number}": weight for number, weight in enumerate(weights)}


@given(WEIGHTS, st.integers(1, 500))
def test_each_corpus_gives_its_rows_one_after_another(weights: list[float], rows: int) -> None:
    corpus, rank = assign(np.arange(rows), shares(named(weights)))
    for number in range(len(weights)):
        mine = rank[corpus == number]
        assert np.array_equal(mine, np.arange(len(mine)))


@given(WEIGHTS, st.integers(0, 2**40), st.integers(1, 50))
def test_rows_in_the_middle_are_those_of_a_run_from_the_start(
    weights: list[float], first: int, rows: int
) -> None:
    parts = shares(named(weights))
    corpus, rank = assign(np.arange(first, first + rows), parts)
    assert (corpus < len(weights)).all() and (rank >= 0).all() and (rank <= first + rows).all()
    singly = [assign(np.array([row]), parts) for row in range(first, first + rows)]
    assert [int(c[0]) for c, _ in singly] == corpus.tolist()
    assert [int(r[0]) for _, r in singly] == rank.tolist()


@given(WEIGHTS)
def test_counts_follow_the_weights(weights: list[float]) -> None:
    rows = 10_000
    corpus, _ = assign(np.arange(rows), shares(named(weights)))
    counts = np.bincount(corpus, minlength=len(weights))
    expected = np.array(weights) / sum(weights) * rows
    assert (np.abs(counts - expected) < len(weights) + 1).all()


def test_shares_are_exact_in_every_block() -> None:
    corpus, _ = assign(np.arange(1000), shares({"a": 5, "b": 3, "c": 2}))
    for block in corpus.reshape(100, 10):
        assert np.bincount(block).tolist() == [5, 3, 2]


@given(st.integers(1, 10), st.integers(1, 10), st.integers(0, 10**9))
def test_first_corpus_has_the_floor_of_its_share(one: int, two: int, rows: int) -> None:
    share = Fraction(one, one + two)
    corpus, rank = assign(np.array([rows]), shares({"a": one, "b": two}))
    before = floor(rows * share)
    assert rank[0] == (before if corpus[0] == 0 else rows - before)


def test_weight_that_would_never_be_read_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.corpora\.a\.weight=1e-09 is too far"):
        shares({"a": 1e-9, "b": 1.0})
    with pytest.raises(ConfigError, match=r"data\.corpora\.a\.weight=1\.0 is too far"):
        shares({"a": 1.0, "b": 1e-9})
