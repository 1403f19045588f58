"""Row k is one function of k: in pieces, over epochs, on any number of ranks."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringshard.config.schema.data import (
    Corpus,
    CorpusKind,
    Data,
    DocumentUnit,
    Packing,
    Split,
    Tokenizer,
    TokenizerKind,
)
from ringshard.data.dataset import Dataset, Rows, concatenated
from ringshard.data.prepare import prepare
from ringshard.data.tokenizer import END
from ringshard.errors import ConfigError


def opened(data: Data, split: str = "train", seed: int = 1) -> Dataset:
    return Dataset(Path(prepare(data).prepared), split, seed)


def texts_of(dataset: Dataset, first: int, last: int) -> list[str]:
    return [dataset.decode(row) for row in dataset.read(first, last).tokens]


def equal(one: Rows, two: Rows) -> bool:
    arrays = zip([*one[:3], *one.bounds], [*two[:3], *two.bounds], strict=True)
    return all(np.array_equal(a, b) for a, b in arrays)


def lines(path: Path, weight: float = 1.0) -> Corpus:
    document = DocumentUnit.line
    return Corpus(kind=CorpusKind.text_files, path=str(path), weight=weight, document=document)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Two corpora; three rows of the small one are read for one of the large one."""
    root = tmp_path_factory.mktemp("mixed")
    for name, documents in (("large", 200), ("small", 60)):  # no two rows are alike
        letters = np.random.default_rng(documents).integers(97, 123, (documents, 20), np.uint8)
        (root / f"{name}.txt").write_bytes(b"\n".join(map(bytes, letters)))
    corpora = {"small": lines(root / "small.txt", 3.0), "large": lines(root / "large.txt", 1.0)}
    return Data(corpora=corpora, seq_len=8, validation_share=0.2, cache=str(root / "cache"))


@pytest.fixture(scope="module", params=list(Packing), ids=lambda packing: str(packing.name))
def dataset(request: pytest.FixtureRequest, mixed: Data) -> Dataset:
    return opened(replace(mixed, packing=request.param))


@given(st.data())
def test_rows_read_in_pieces_are_those_read_at_once(dataset: Dataset, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, 3 * dataset.rows))
    cuts = sorted(data.draw(st.lists(st.integers(0, 100), min_size=1, max_size=5)))
    edges = [first, *(first + cut for cut in cuts)]
    parts = [dataset.read(a, b) for a, b in itertools.pairwise(edges)]
    together = concatenated(parts)
    assert equal(together, dataset.read(edges[0], edges[-1]))


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_read_together_what_one_process_reads(dataset: Dataset, world: int) -> None:
    batch = 8
    for first in range(0, 3 * dataset.rows, batch):
        each = batch // world
        parts = [
            dataset.read(first + rank * each, first + (rank + 1) * each) for rank in range(world)
        ]
        together = concatenated(parts)
        assert equal(together, dataset.read(first, first + batch))


def test_every_row_of_a_corpus_is_read_once_an_epoch_over_three_epochs(dataset: Dataset) -> None:
    count = 12 * dataset.rows
    rows = dataset.read(0, count)
    for number, share in enumerate([0.25, 0.75]):  # sorted by name: large, small
        mine = [tuple(row) for row in rows.tokens[rows.corpus == number].tolist()]
        assert len(mine) == count * share
        epoch = len(set(mine))
        epochs = [mine[at : at + epoch] for at in range(0, 3 * epoch, epoch)]
        assert all(len(set(each)) == epoch for each in epochs)
        assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_a_new_object_goes_on_where_another_stopped(mixed: Data, dataset: Dataset) -> None:
    again = Dataset(dataset._folder, "train", 1)
    assert equal(again.read(777, 800), dataset.read(777, 800))


def test_seed_changes_the_order_of_training_alone(mixed: Data) -> None:
    assert not equal(opened(mixed, seed=1).read(0, 50), opened(mixed, seed=2).read(0, 50))
    one, two = opened(mixed, "validation", 1), opened(mixed, "validation", 2)
    assert equal(one.read(0, one.rows), two.read(0, two.rows))


def test_validation_holds_each_row_once_and_then_ends(mixed: Data) -> None:
    dataset = opened(mixed, "validation")
    rows = dataset.read(0, dataset.rows)
    assert set(np.bincount(rows.corpus)) == set(dataset._rows)
    assert max(Counter(map(tuple, rows.tokens.tolist())).values()) == 1
    with pytest.raises(IndexError):
        dataset.read(dataset.rows - 1, dataset.rows + 1)


def test_rows_are_the_documents_of_their_split_end_to_end_and_nothing_of_the_other(
    tmp_path: Path,
) -> None:
    """No character occurs twice, so that a token tells which document it is from."""
    documents = ["".join(map(chr, range(at, at + 20))) for at in range(0x4E00, 0x5200, 20)]
    (tmp_path / "a.txt").write_text("\n".join(documents))
    tokenizer, cache = Tokenizer(kind=TokenizerKind.characters), str(tmp_path / "cache")
    corpora = {"a": lines(tmp_path / "a.txt")}
    data = Data(
        corpora,
        tokenizer=tokenizer,
        seq_len=10,
        packing=Packing.concat,
        validation_share=0.3,
        cache=cache,
    )
    of_both = []
    for split in ("train", "validation"):
        dataset = opened(data, split)
        rows = [text.replace(END, "~") for text in texts_of(dataset, 0, dataset.rows)]
        mine = [document for document in documents if document[0] in "".join(rows)]
        stream = "".join(document + "~" for document in mine)
        cut = [stream[at : at + 11] for at in range(0, len(stream) - 10, 10)]
        assert sorted(rows) == sorted(cut)
        of_both += mine
    assert sorted(of_both) == documents


def test_padding_is_not_learned(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(["abc", "de", "fghijklmno"] * 20))
    data = Data(
        corpora={"a": lines(tmp_path / "a.txt")},
        seq_len=6,
        packing=Packing.none,
        cache=str(tmp_path / "cache"),
        validation_share=0.3,
    )
    dataset = opened(data)
    rows = dataset.read(0, dataset.rows)
    learned = {
        dataset.decode(tokens[1:][mask])
        for tokens, mask in zip(rows.tokens, rows.loss_mask, strict=True)
    }
    assert learned == {"bc<|endoftext|>", "e<|endoftext|>", "ghijkl", "mno<|endoftext|>"}


def test_prompts_and_questions_are_read_but_not_learned(tmp_path: Path) -> None:
    record = '{"q": "2+2=", "a": "4"}\n'
    (tmp_path / "a.jsonl").write_text(record * 100)
    corpus = Corpus(path=str(tmp_path / "a.jsonl"), prompt_field="q", text_field="a")
    data = Data(corpora={"a": corpus}, seq_len=5, packing=Packing.none, cache=str(tmp_path / "c"))
    rows = opened(data).read(0, 3)
    assert rows.tokens[:, :6].tolist() == [[*b"2+2=4", 256]] * 3
    assert rows.loss_mask.tolist() == [[False, False, False, True, True]] * 3


def test_characters_of_one_text_are_its_vocabulary(tmp_path: Path) -> None:
    text = "To be, or not to be.\n" * 100
    (tmp_path / "a.txt").write_text(text)
    data = Data(
        corpora={"a": Corpus(path=str(tmp_path / "a.txt"))},
        tokenizer=Tokenizer(kind=TokenizerKind.characters),
        split=Split.position,
        validation_share=0.1,
        seq_len=10,
        cache=str(tmp_path / "cache"),
    )
    dataset = opened(data, "validation")
    assert dataset.vocab_size == len(set(text))
    assert dataset.rows == -(-(len(text) - int(len(text) * 0.9) - 1) // 10)
    assert dataset.decode(dataset.encode("or not")) == "or not"
    assert dataset.bigram_entropy is not None and 0 < dataset.bigram_entropy < math.log(12)


def test_removed_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.prepared=.*gone is gone: prepare the data again"):
        Dataset(tmp_path / "gone", "train", 1)


def test_bounds_of_rows_are_not_those_of_their_documents(dataset: Dataset) -> None:
    rows = dataset.read(0, 2 * dataset.rows)
    for bounds, learned in zip(rows.bounds, rows.loss_mask, strict=True):
        assert bounds[0] == 0 and bounds[-1] == dataset.seq_len and (np.diff(bounds) > 0).all()
        assert not learned[bounds[1:-1] - 1].any()  # the first token of another document
    if dataset._metadata["packing"] == "concat":
        assert all(len(bounds) == 2 for bounds in rows.bounds)


@pytest.mark.parametrize("seq_len", [7, 30])
def test_a_document_of_a_row_holds_tokens_of_another(tmp_path: Path, seq_len: int) -> None:
    """No character occurs twice, and each but a first follows the one before it in the alphabet."""
    sizes = np.random.default_rng(3).integers(2, 60, 40)
    starts = 0x4E00 + np.cumsum(sizes + 1) - sizes
    documents = ["".join(map(chr, range(a, a + n))) for a, n in zip(starts, sizes, strict=True)]
    (tmp_path / "a.txt").write_text("\n".join(documents))
    tokenizer = Tokenizer(kind=TokenizerKind.characters)
    cache, corpora = str(tmp_path / "cache"), {"a": lines(tmp_path / "a.txt")}
    dataset = opened(Data(corpora, tokenizer=tokenizer, seq_len=seq_len, cache=cache))
    rows = dataset.read(0, dataset.rows)
    learned, padding = Counter[str](), 0
    for tokens, mask, bounds in zip(rows.tokens, rows.loss_mask, rows.bounds, strict=True):
        text = dataset.decode(tokens).replace(END, "~")
        for first, last in itertools.pairwise(bounds):
            piece = text[first:last]
            padding += (last - first) * (piece == "~" * (last - first))
            assert piece.strip("~") in "\n".join(documents)
        for at in np.flatnonzero(mask):
            assert text[at + 1] in ("~", chr(ord(text[at]) + 1))
            learned[text[at + 1]] += 1
    mine = [text for text in documents if learned[text[1]]]
    assert learned == Counter("".join(text[1:] + "~" for text in mine))
    assert rows.padding.sum() == padding
    assert dataset.padding == pytest.approx(padding / (dataset.rows * seq_len))


def test_padding_of_a_mixture_is_that_of_its_rows(mixed: Data) -> None:
    data = replace(mixed, packing=Packing.none, seq_len=16)  # 21 tokens: 16 and 5 of two rows
    assert opened(data).padding == pytest.approx(11 / 32)
    assert set(opened(data).read(0, 20).padding) == {0, 11}
    assert opened(data, "validation").padding == pytest.approx(11 / 32)
    assert opened(replace(data, packing=Packing.concat)).padding == 0


@pytest.mark.parametrize("packing", list(Packing), ids=lambda packing: str(packing.name))
def test_pairs_across_documents_count_where_none_is_read(tmp_path: Path, packing: Packing) -> None:
    (tmp_path / "a.txt").write_text("\n".join(["az", "bz", "cz"] * 40))
    corpora, cache = {"a": lines(tmp_path / "a.txt")}, str(tmp_path / "cache")
    data = Data(corpora, seq_len=16, packing=packing, validation_share=0.3, cache=cache)
    entropy = opened(data).bigram_entropy
    assert entropy is not None and (entropy > 0) == (packing is Packing.concat)
