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
from ringshard.data.corpus import source
from ringshard.data.prepare import prepare

CASES = [
    ("bytes", "file", "txt", 1000),
    ("bytes", "line", "txt", 1000),
    ("bytes", "file", "jsonl", 1000),
    ("characters", "file", "txt", 100),
    ("bpe", "file", "txt", 12),
    ("bpe", "file", "txt", 250),  # repeated text: its memory counts, its speed is the cache's
]
"""(tokenizer, what a document is, format, size of the text [MB]); learning the tokenizer counts."""


def run() -> list[dict[str, Any]]:
    """One row per case: text [MB], speed [MB/s], peak memory of the process [MB].

    The text is the standard library, again and again; what is written is removed.
    """
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "text.txt"
        _write(text, max(size for *_, size in CASES) * 1_000_000)
        return [
            _apart(_in_format(form, _head(text, size * 1_000_000)), tokenizer, document)
            for tokenizer, document, form, size in CASES
        ]


def _write(path: Path, size: int) -> None:
    """The standard library, again and again, up to `size` bytes."""
    stdlib = source("stdlib", Corpus(CorpusKind.python_stdlib), lambda *_: "")
    library = "".join(piece.text for piece in stdlib.pieces()).encode()
    with path.open("wb") as file:
        for left in range(size, 0, -len(library)):
            file.write(library[:left])


def _apart(text: Path, tokenizer: str, document: str) -> dict[str, Any]:
    """A case in a fresh process, whose peak memory is its own."""
    command = [sys.executable, __file__, str(text), tokenizer, document]
    return dict(json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL)))


def _measure(text: Path, tokenizer: str, document: str) -> dict[str, Any]:
    field = "text" if text.suffix == ".jsonl" else None
    corpus = Corpus(path=str(text), document=DocumentUnit[document], text_field=field)
    data = Data(
        corpora={"text": corpus},
        tokenizer=Tokenizer(TokenizerKind[tokenizer], None, 4096 if tokenizer == "bpe" else None),
        split=Split.position,
    )
    with tempfile.TemporaryDirectory(dir=text.parent) as data.cache:
        started = time.perf_counter()
        prepare(data)
        seconds = time.perf_counter() - started
    size = text.stat().st_size / 1e6
    return {
        "case": f"{tokenizer}, {text.suffix}, one document a {document}",
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


def _in_format(form: str, text: Path) -> Path:
    """The text itself, or each of its lines as a record of JSON."""
    if form == "txt":
        return text
    path = text.with_suffix(f".{form}")
    with text.open(encoding="utf-8", errors="replace") as lines, path.open("w") as file:
        file.writelines(json.dumps({"text": line}) + "\n" for line in lines)
    return path


if __name__ == "__main__":  # one case
    path, *case = sys.argv[1:]
    print(json.dumps(_measure(Path(path), *case)))
