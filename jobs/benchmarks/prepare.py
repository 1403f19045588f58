"""Speed and memory of data preparation, each case in a process of its own.

`python jobs/benchmarks/prepare.py 1000` repeats the standard library to a text of 1,000 MB.
"""

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

CASES = [("bytes", "file"), ("bytes", "line"), ("characters", "file"), ("bpe", "file")]
"""(tokenizer, what a document is); learning the tokenizer counts."""
LONGEST_BPE = 12_000_000
"""bytes: repeated text would only measure the tokenizer's cache."""


def run(megabytes: int = 100) -> list[dict[str, Any]]:
    """One row per case: text [MB], speed [MB/s], peak memory of the process [MB]."""
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "text.txt"
        _write(text, megabytes * 1_000_000)
        return [_apart(text, *case) for case in CASES]


def _write(path: Path, size: int) -> None:
    """The standard library, again and again, up to `size` bytes."""
    source = corpus.source("stdlib", Corpus(CorpusKind.python_stdlib), lambda *_: "")
    with path.open("wb") as file:
        while file.tell() < size:
            for piece in source.pieces():
                file.write(piece.text.encode()[: size - file.tell()])


def _apart(text: Path, tokenizer: str, document: str) -> dict[str, Any]:
    """A case in a fresh process, whose peak memory is its own."""
    command = [sys.executable, __file__, str(text), tokenizer, document]
    return dict(json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL)))


def _measure(text: Path, tokenizer: str, document: str) -> dict[str, Any]:
    if tokenizer == "bpe":
        text = _head(text, LONGEST_BPE)
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
    with text.open("rb") as file:
        head = file.read(size).rpartition(b"\n")[0]
    path = text.with_name("head.txt")
    path.write_bytes(head)
    return path


def main() -> None:
    """A number of megabytes prints all cases; a text and a case print that case alone."""
    text, *case = sys.argv[1:] or ["100"]
    rows = [_measure(Path(text), *case)] if case else run(int(text))
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
