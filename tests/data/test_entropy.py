"""The entropy of pairs against its definition."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringshard.data import rows, store
from ringshard.data.documents import Piece
from ringshard.data.entropy import bigram
from ringshard.data.split import Spans
from ringshard.data.tokenizer import Bytes


@given(st.lists(st.integers(0, 4), min_size=2, max_size=200), st.integers(1, 20))
def test_bigram_entropy_is_the_mean_loss_of_the_counted_model(ids: list[int], block: int) -> None:
    tokens = np.array(ids, dtype=np.uint16).astype(np.int64)
    pairs = list(itertools.pairwise(ids))
    counts = {pair: pairs.count(pair) for pair in pairs}
    before = {p: sum(n for (q, _), n in counts.items() if q == p) for p, _ in pairs}
    loss = -sum(math.log(counts[pair] / before[pair[0]]) for pair in pairs) / len(pairs)
    blocks = [
        (tokens[at : at + block], tokens[at + 1 : at + 1 + block][: len(tokens[at + 1 :])])
        for at in range(0, len(tokens) - 1, block)
    ]
    found = bigram([(a[: len(b)], b) for a, b in blocks], 5)
    assert found == pytest.approx(loss, abs=1e-12)


def test_alternating_tokens_are_known_from_the_one_before() -> None:
    tokens = np.tile([0, 1], 500)
    assert bigram([(tokens[:-1], tokens[1:])], 2) == 0


def test_many_documents_are_counted_at_once_and_none_goes_on_with_another(tmp_path: Path) -> None:
    documents = [f"document {number}" for number in range(100)]
    store.write(tmp_path, map(Piece, documents), Bytes(), False, lambda *_: None)
    made = store.Store(tmp_path)
    spans = Spans(made.bounds[:-1:2], made.bounds[1::2])  # neighbours would be one span
    ((previous, following),) = rows._together(rows._pairs(made, [spans], apart=True))
    ids = [[*document.encode(), 256] for document in documents[::2]]
    expected = [pair for each in ids for pair in itertools.pairwise(each)]
    assert list(zip(previous.tolist(), following.tolist(), strict=True)) == expected


@pytest.mark.parametrize("apart", [False, True])
def test_a_pair_is_lost_where_blocks_of_documents_meet(apart: bool, tmp_path: Path) -> None:
    documents = [f"document {number}" for number in range(10)]
    store.write(tmp_path, map(Piece, documents), Bytes(), False, lambda *_: None)
    made = store.Store(tmp_path)
    start, end = made.bounds[:-1], made.bounds[1:]

    def pairs(*blocks: Spans) -> list[tuple[int, int]]:
        found = rows._pairs(made, blocks, apart)
        return [pair for p, f in found for pair in zip(p.tolist(), f.tolist(), strict=True)]

    halves = Spans(start[:5], end[:5]), Spans(start[5:], end[5:])
    assert pairs(*halves) == pairs(Spans(start, end))
