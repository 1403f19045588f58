"""Small corpora in a temporary folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from ringshard.config.schema.data import Corpus, CorpusKind, Data

settings.register_profile("shared", deadline=None)  # others work on the same cores
settings.load_profile("shared")

Make = Callable[..., Data]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder of 40 text files of different lengths."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(40):
        text = "".join(f"Line {line} of text {number}, ü.\n" for line in range(number + 1))
        (folder / f"{number:02}.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A factory of `Data` with one text_files corpus; options of the corpus go in `corpus`."""

    def data(path: Path | str, corpus: dict[str, Any] | None = None, **options: Any) -> Data:
        one = Corpus(kind=CorpusKind.text_files, path=str(path), **corpus or {})
        settings = {"seq_len": 16, "validation_share": 0.2, "cache": str(tmp_path / "cache")}
        return Data(corpora={"text": one}, **{**settings, **options})

    return data
