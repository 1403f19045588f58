"""Text to ids and back."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers

from ringshard.data import subword, tokenizer
from ringshard.data.tokenizer import END, Bytes, characters
from ringshard.errors import ConfigError

TEXTS = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"])), max_size=6)
SAMPLE = ["def f(x):\n    return x + 1\n", "größer als ∞ ", "def g(y):\n    return y\n"] * 20


def round_trip(made: tokenizer.Tokenizer, texts: list[str]) -> None:
    ids, lengths = made.encode(texts, [False] * len(texts))
    assert lengths.sum() == len(ids) and (ids < made.vocab_size).all()
    ends = np.cumsum(lengths)
    for text, start, end in zip(texts, ends - lengths, ends, strict=True):
        assert made.decode([int(number) for number in ids[start:end]]) == text


@given(TEXTS)
def test_bytes_round_trip(texts: list[str]) -> None:
    round_trip(Bytes(), texts)


@given(TEXTS)
def test_characters_round_trip(texts: list[str]) -> None:
    if any(texts):
        round_trip(characters((text, True) for text in texts), texts)


@pytest.fixture(scope="module")
def bpe() -> subword.Subword:
    return subword.train(iter(SAMPLE), 280)


@given(texts=TEXTS)
def test_bpe_round_trip(bpe: subword.Subword, texts: list[str]) -> None:
    round_trip(bpe, texts)


def test_bpe_is_the_same_each_time(tmp_path: Path) -> None:
    contents = []
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        subword.train(iter(SAMPLE), 280).save(folder)
        contents.append((folder / "tokenizer.json").read_text())
    assert len(set(contents)) == 1


def test_bpe_with_more_ids_than_the_text_yields_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"vocab_size=5000 is more than this corpus yields"):
        subword.train(iter(SAMPLE), 5000)


def test_end_written_in_a_text_is_text(bpe: subword.Subword) -> None:
    ids, _ = bpe.encode([f"a{END}b"])
    assert bpe.end not in ids and bpe.decode(ids.tolist()) == f"a{END}b"


def test_one_document_needs_no_end_of_document() -> None:
    one = characters([("ab", False), ("c", True)])
    several = characters([("ab", True), ("c", True)])
    assert (one.vocab_size, one.end) == (3, None)
    assert (several.vocab_size, several.end) == (4, 3)


def test_unknown_character_is_named() -> None:
    with pytest.raises(ConfigError, match="no id for 'é'"):
        characters([("abc", True)]).encode(["abé"])


def test_broken_bytes_are_shown() -> None:
    assert Bytes().decode([0xC3, 256, 65]) == f"�{END}A"


def test_saved_tokenizers_come_back(tmp_path: Path, bpe: subword.Subword) -> None:
    for number, made in enumerate([Bytes(), characters([("añb", True), ("c", True)]), bpe]):
        folder = tmp_path / str(number)
        folder.mkdir()
        made.save(folder)
        again = tokenizer.load(folder)
        assert (again.vocab_size, again.end) == (made.vocab_size, made.end)
        assert (
            again.encode(["añb"], [False])[0].tolist() == made.encode(["añb"], [False])[0].tolist()
        )
        assert again.decode([1, made.end]) == made.decode([1, made.end])


def spaced() -> Library:
    """A tokenizer that puts a space before all that begins, as SentencePiece models do."""
    pieces = {"<unk>": 0, "</s>": 1, "▁": 2, "\n": 3, "a": 4, "x": 5, "▁a": 6}
    library = Library(models.BPE(pieces, [("▁", "a")], unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    library.add_special_tokens(["</s>"])
    return library


def test_text_that_goes_on_gets_no_space_of_its_own() -> None:
    made = subword.Subword(spaced(), "</s>", literal=False)
    whole, _ = made.encode(["axax"])
    parts, lengths = made.encode(["ax", "ax"], [False, True])
    assert parts.tolist() == whole.tolist() == [6, 5, 4, 5] and lengths.tolist() == [2, 2]
    assert made.encode(["ax", "ax"], [False, False])[0].tolist() == [6, 5, 6, 5]


def test_folder_names_its_end_or_must_be_told(tmp_path: Path) -> None:
    library = Library(models.BPE({"a": 0, "<stop>": 1}, []))
    library.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(
        ConfigError, match=r"names no end-of-text token: set data\.tokenizer\.end_token"
    ):
        subword.load(tmp_path)
    with pytest.raises(ConfigError, match="has no token <other>"):
        subword.load(tmp_path, "<other>")
    assert subword.load(tmp_path, "<stop>").end == 1
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<stop>"}}')
    assert subword.load(tmp_path).end == 1


def test_ids_with_holes_are_all_below_the_vocabulary_size(tmp_path: Path) -> None:
    Library(models.BPE({"a": 0, "</s>": 9}, [])).save(str(tmp_path / "tokenizer.json"))
    assert subword.load(tmp_path).vocab_size == 10
