"""Where documents come from: each kind of corpus as a fingerprint and a stream of pieces."""

import sysconfig
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from ringshard.config.schema.data import Corpus, CorpusKind, DocumentUnit
from ringshard.data import chat, documents, files, records
from ringshard.data.documents import Piece
from ringshard.errors import ConfigError
from ringshard.registry import blamed, lookup

_NOT_SOURCES = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3"}


@dataclass(frozen=True)
class Source:
    """A corpus that can be read as often as one likes."""

    fingerprint: Callable[[], Any]
    """Plain data that changes when the documents do."""
    pieces: Callable[[], Iterator[Piece]]
    """The documents, in the same order each time."""


def source(name: str, corpus: Corpus, template: chat.Template) -> Source:
    """The documents of `data.corpora.<name>`; raises ConfigError where there are none."""
    key = f"data.corpora.{name}"
    if corpus.kind is CorpusKind.python_stdlib:
        return _python_stdlib()
    if corpus.kind is CorpusKind.text_files:
        return _text_files(corpus, template, key)
    if corpus.kind is CorpusKind.hf_dataset:
        from ringshard.data import hf_dataset

        read, fingerprint = hf_dataset.opened(corpus, key)
    else:
        read = _custom(corpus, key)
        fingerprint = _content(read)
    return Source(fingerprint, lambda: _documents(read(), corpus, template, key))


def _python_stdlib() -> Source:
    """The sources of the running Python without its tests, about 12 MB, one document a file."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = sorted(
        path
        for path in root.rglob("*.py")
        if path.is_file() and not _NOT_SOURCES.intersection(path.relative_to(root).parts)
    )

    def pieces() -> Iterator[Piece]:
        for path in paths:
            with path.open("rb") as file:
                encoding, _ = tokenize.detect_encoding(file.readline)
            yield from documents.whole(files.text(path, encoding))

    return Source(lambda: files.fingerprint(paths), pieces)


def _text_files(corpus: Corpus, template: chat.Template, key: str) -> Source:
    paths = files.found(str(corpus.path), f"{key}.path")
    _refuse_idle_options(corpus, {files.form(path) in files.RECORDS for path in paths}, key)

    def pieces() -> Iterator[Piece]:
        for path in paths:
            if files.form(path) in files.RECORDS:
                yield from _documents(records.read(path, corpus, key), corpus, template, key)
            elif corpus.document is DocumentUnit.file:
                yield from documents.whole(files.text(path))
            else:
                line = corpus.document is DocumentUnit.line
                yield from documents.separated(
                    files.text(path), "\n" if line else str(corpus.separator)
                )

    return Source(lambda: files.fingerprint(paths), pieces)


def _refuse_idle_options(corpus: Corpus, forms: set[bool], key: str) -> None:
    """Raise where an option says how to read files of a form (records: True) that is not there."""
    if True not in forms:
        for option in ("text_field", "prompt_field", "messages_field"):
            if value := getattr(corpus, option):
                raise ConfigError(
                    f"{key}.{option}={value} has no effect on plain text: "
                    "remove it, or give .jsonl or .parquet files"
                )
    if False not in forms and corpus.document is not DocumentUnit.file:
        raise ConfigError(
            f"{key}.document={corpus.document.name} has no effect on .jsonl and .parquet files, "
            "where each record is a document: remove it"
        )


def _custom(corpus: Corpus, key: str) -> Callable[[], Iterator[tuple[str, records.Record]]]:
    """The registered function's documents: records, or plain strings."""
    function = lookup("corpus", str(corpus.name))
    field = corpus.text_field or "text"

    def read() -> Iterator[tuple[str, records.Record]]:
        with blamed(f"{key}.name={corpus.name}"):
            for number, item in enumerate(function(**corpus.args)):
                record = {field: item} if isinstance(item, str) else item
                where = f"document {number} of {corpus.name}"
                if not isinstance(record, Mapping) or not all(isinstance(k, str) for k in record):
                    raise ConfigError(
                        f"{where} is {type(item).__name__}: yield a str, or a dict with names of"
                        " fields"
                    )
                yield where, record

    return read


def _content(read: Callable[[], Iterator[tuple[str, records.Record]]]) -> Callable[[], str]:
    """A fingerprint of what nothing but its content is known of: it is read once more."""

    def fingerprint() -> str:
        digest = xxhash.xxh3_128()
        for _, record in read():
            digest.update(repr(sorted(record.items())).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    return fingerprint


def _documents(
    read: Iterable[tuple[str, records.Record]], corpus: Corpus, template: chat.Template, key: str
) -> Iterator[Piece]:
    for where, record in read:
        yield from records.pieces(record, corpus, template, where, key)
