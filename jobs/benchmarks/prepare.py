"""Speed and memory of data preparation, each case in a process of its own; 1 GB of text first."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ringshard.config.schema.data import (
    Corpus,
    CorpusKind,
    Data,
    DocumentUnit,
    Split,
    Tokenizer,
    TokenizerKind,
)
from ringshard.data import corpus
from ringshard.data.prepare import prepare

CASES = [
    ("bytes", "file", 1000),
    ("bytes", "line", 1000),
    ("characters", "file", 100),
    ("bpe", "file", 12),  # repeated text would only measure the tokenizer's cache
]
"""(tokenizer, what a document is, size of the text [MB]); learning the tokenizer counts."""


def run() -> list[dict[str, Any]]:
    """One row per case: text [MB], speed [MB/s], peak memory of the process [MB].

    The text is the standard library, again and again; what is written is removed.
    """
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "text.txt"
        _write(text, max(size for *_, size in CASES) * 1_000_000)
        return [_apart(_head(text, size * 1_000_000), *case) for *case, size in CASES]


def _write(path: Path, size: int) -> None:
    """The standard library, again and again, up to `size` bytes."""
    source = corpus.source("stdlib", Corpus(CorpusKind.python_stdlib), lambda *_: "")
    library = "".join(piece.text for piece in source.pieces()).encode()
    with path.open("wb") as file:
        for left in range(size, 0, -len(library)):
            file.write(library[:left])


def _apart(text: Path, tokenizer: str, document: str) -> dict[str, Any]:
    """A case in a fresh process, whose peak memory is its own."""
    command = [sys.executable, __file__, str(text), tokenizer, document]
    return dict(json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL)))


def _measure(text: Path, tokenizer: str, document: str) -> dict[str, Any]:
    data = Data(
        corpora={"text": Corpus(path=str(text), document=DocumentUnit[document])},
        tokenizer=Tokenizer(TokenizerKind[tokenizer], None, 4096 if tokenizer == "bpe" else None),
        split=Split.position,
    )
    with tempfile.TemporaryDirectory(dir=text.parent) as data.cache:
        started = time.perf_counter()
        prepare(data)
        seconds = time.perf_counter() - started
    size = text.stat().st_size / 1e6
    return {
        "case": f"{tokenizer}, one document a {document}",
        "mb": round(size),
        "mb_per_s": round(size / seconds, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6),
    }


def _head(text: Path, size: int) -> Path:
    """The first whole lines of a text, up to `size` bytes together."""
    if text.stat().st_size <= size:
        return text
    with text.open("rb") as file:
        head = file.read(size).rpartition(b"\n")[0]
    path = text.with_name("head.txt")
    path.write_bytes(head)
    return path


if __name__ == "__main__":  # one case
    path, *case = sys.argv[1:]
    print(json.dumps(_measure(Path(path), *case)))
