"""Rows hold every token as a target once, and nothing of the other split."""

import itertools
import tracemalloc
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringshard.config.schema.data import Packing, Split
from ringshard.data import packing as packings
from ringshard.data import split as splits
from ringshard.data.packing import index, layout
from ringshard.data.split import Spans, divide, held_out, joined

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=40)
SEQ_LEN = st.integers(1, 12)
SPLITS = st.sampled_from(list(Split))


def bounds_of(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)])


def tokens_of(spans: Spans) -> np.ndarray:
    """The positions of the store that lie in the spans."""
    ranges = [np.arange(start, end) for start, end in zip(*spans, strict=True)]
    return np.concatenate([np.empty(0, int), *ranges])


def divided(lengths: list[int], split: Split, share: float) -> dict[str, Spans]:
    parts = {"train": False, "validation": True}
    return {
        name: whole(divide(bounds_of(lengths), split, share, validation))
        for name, validation in parts.items()
    }


def whole(blocks: Iterable[Spans]) -> Spans:
    return Spans(*(np.concatenate(sides) for sides in zip(*blocks, strict=True)))


def rows_of(spans: Spans, packing: Packing, seq_len: int) -> list[np.ndarray]:
    made = layout(index(spans, packing, seq_len), packing, seq_len)
    return [
        np.concatenate([np.arange(part.start, part.stop) for part in made.slices(row)])
        for row in range(made.rows)
    ]


@given(LENGTHS, SPLITS, st.floats(0.01, 0.99))
def test_splits_share_no_token_and_lose_none(
    lengths: list[int], split: Split, share: float
) -> None:
    parts = divided(lengths, split, share)
    both = np.concatenate([tokens_of(parts["train"]), tokens_of(parts["validation"])])
    assert np.array_equal(np.sort(both), np.arange(sum(lengths)))


@given(LENGTHS, SPLITS, st.floats(0.01, 0.99), SEQ_LEN)
def test_concat_rows_are_the_stream_of_the_split_with_one_token_of_overlap(
    lengths: list[int], split: Split, share: float, seq_len: int
) -> None:
    for spans in divided(lengths, split, share).values():
        stream, rows = tokens_of(spans), rows_of(spans, Packing.concat, seq_len)
        assert len(rows) == max(0, (len(stream) - 1) // seq_len)
        for number, row in enumerate(rows):
            at = number * seq_len
            assert np.array_equal(row, stream[at : at + seq_len + 1])


@given(LENGTHS, SEQ_LEN)
def test_a_row_of_its_own_holds_one_document_and_each_target_once(
    lengths: list[int], seq_len: int
) -> None:
    bounds = bounds_of(lengths)
    rows = rows_of(Spans(bounds[:-1], bounds[1:]), Packing.none, seq_len)
    targets = Counter(int(token) for row in rows for token in row[1:])
    expected = [token for b, e in itertools.pairwise(bounds) for token in range(b + 1, e)]
    assert targets == Counter(expected)
    documents = [set(np.searchsorted(bounds, row, side="right")) for row in rows]
    assert all(len(of) == 1 for of in documents) and all(len(row) <= seq_len + 1 for row in rows)


@given(LENGTHS, SPLITS, SEQ_LEN)
def test_documents_put_together_are_read_whole_and_each_target_once(
    lengths: list[int], split: Split, seq_len: int
) -> None:
    for spans in divided(lengths, split, 0.3).values():
        learnable = Spans(*(side[spans.end - spans.start > 1] for side in spans))
        inputs, targets = Counter[int](), Counter[int]()
        made = layout(index(spans, Packing.documents, seq_len), Packing.documents, seq_len)
        for row in range(made.rows):
            pieces = [range(part.start, part.stop) for part in made.slices(row)]
            tokens = [token for piece in pieces for token in piece]
            assert 1 < len(tokens) <= seq_len + 1 and tokens == sorted(tokens)
            inputs.update(tokens[:seq_len])
            targets.update(token for piece in pieces for token in piece[1:])
        assert targets == Counter(set(tokens_of(learnable)) - set(learnable.start))
        last = set(learnable.end - 1)  # has no target: in a full row it is not read
        assert max(inputs.values(), default=1) == 1
        assert set(inputs) | last == set(tokens_of(learnable))
        assert made.padding() == made.rows * seq_len - inputs.total()


@pytest.mark.parametrize("packing", list(Packing), ids=lambda packing: str(packing.name))
@given(lengths=LENGTHS, seq_len=SEQ_LEN)
def test_padding_is_what_all_rows_leave(packing: Packing, lengths: list[int], seq_len: int) -> None:
    bounds = bounds_of(lengths)
    spans = Spans(bounds[:-1], bounds[1:])
    made = layout(index(spans, packing, seq_len), packing, seq_len)
    rows = rows_of(spans, packing, seq_len)
    assert made.padding() == sum(max(seq_len - len(row), 0) for row in rows)


def test_one_long_text_is_cut_as_end_to_end() -> None:
    text = Spans(np.array([5]), np.array([1005]))
    rows = [rows_of(text, packing, 16) for packing in (Packing.documents, Packing.concat)]
    assert len(rows[0]) == len(rows[1]) + 1  # the rest, which fills no row
    assert all(np.array_equal(one, two) for one, two in zip(*rows, strict=False))


@given(st.lists(st.booleans(), max_size=30))
def test_joined_spans_hold_the_same_tokens(kept: list[bool]) -> None:
    bounds, chosen = bounds_of([3] * len(kept)), np.array(kept, dtype=bool)
    spans = Spans(bounds[:-1][chosen], bounds[1:][chosen])
    assert np.array_equal(tokens_of(joined(spans)), tokens_of(spans))
    assert (joined(spans).start[1:] > joined(spans).end[:-1]).all()


def test_documents_stay_in_their_split_when_more_are_added() -> None:
    assert np.array_equal(held_out(np.arange(1000), 0.05), held_out(np.arange(5000), 0.05)[:1000])


def test_share_of_documents_is_what_was_asked_for() -> None:
    assert abs(held_out(np.arange(100_000), 0.05).mean() - 0.05) < 0.003
    few, many = held_out(np.arange(1000), 0.05), held_out(np.arange(1000), 0.1)
    assert (few <= many).all()


def test_position_cuts_where_nanogpt_cuts() -> None:
    length = 1_115_394  # tiny Shakespeare
    parts = divided([length], Split.position, 0.1)
    assert int(parts["train"].end[0]) == int(length * 0.9) == int(parts["validation"].start[0])


@pytest.mark.parametrize("packing", list(Packing), ids=lambda packing: str(packing.name))
@given(lengths=LENGTHS, split=SPLITS, seq_len=SEQ_LEN)
def test_documents_looked_at_a_few_at_a_time_lose_tokens(
    packing: Packing, lengths: list[int], split: Split, seq_len: int
) -> None:
    bounds = bounds_of(lengths)
    for validation in (False, True):
        spans = whole(divide(bounds, split, 0.3, validation))
        with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as name:
            patched.setattr(splits, "BLOCK", 3)
            blocks = list(divide(bounds, split, 0.3, validation))
            assert all(map(np.array_equal, whole(blocks), spans))
            padding = packings.write(Path(name) / "index", blocks, packing, seq_len)
            made = packings.read(Path(name) / "index", packing, seq_len)
            rows = [
                np.concatenate([np.arange(part.start, part.stop) for part in made.slices(row)])
                for row in range(made.rows)
            ]
        if packing is Packing.documents:  # in other rows
            pieces = Counter(int(t) for row in rows for t in row[1:])
            once = Counter(int(t) for row in rows_of(spans, packing, seq_len) for t in row[1:])
            starts = set(spans.start.tolist())
            assert {t for t in pieces if t not in starts} == {t for t in once if t not in starts}
        else:
            expected = rows_of(spans, packing, seq_len)
            assert len(rows) == len(expected) and all(map(np.array_equal, rows, expected))
        assert padding == sum(max(seq_len - len(row), 0) for row in rows)


def test_memory_of_packing_grows_with_the_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "BLOCK", 1 << 10)

    def peak(documents: int) -> int:
        bounds = np.arange(documents + 1) * 7
        tracemalloc.start()
        blocks = divide(bounds, Split.document, 0.1, False)
        packings.write(tmp_path / str(documents), blocks, Packing.documents, 256)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(1 << 10)  # what is imported at first use
    assert peak(1 << 16) < 1.5 * peak(1 << 12)
