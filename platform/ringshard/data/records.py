"""Records (lines of JSON, rows of parquet, examples of a dataset) as documents."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ringshard.config.schema.data import Corpus
from ringshard.data import chat, files
from ringshard.data.documents import Piece
from ringshard.errors import ConfigError

Record = Mapping[str, Any]


def read(path: Path, corpus: Corpus, key: str) -> Iterator[tuple[str, Record]]:
    """The records of a .jsonl or .parquet file, each with the words that name its place."""
    if files.form(path) == ".jsonl":
        return _json_lines(path)
    return _parquet(path, corpus, key)


def _json_lines(path: Path) -> Iterator[tuple[str, Record]]:
    with files.opened(path) as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}:{number}"
            try:
                record = json.loads(line) if line.strip() else None
            # Bad JSON, bytes that are no UTF-8, or brackets in brackets in brackets.
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{where} is no JSON ({error}): mend or drop the line") from error
            if isinstance(record, dict):
                yield where, record
            elif line.strip():
                raise ConfigError(f"{where} is no JSON object: write one {{…}} on each line")


def _parquet(path: Path, corpus: Corpus, key: str) -> Iterator[tuple[str, Record]]:
    import pyarrow as arrow
    from pyarrow import parquet

    row = 0
    with files.seekable(path) as file:
        try:
            table = parquet.ParquetFile(file)
            columns = [_known(option, name, table.schema_arrow.names, str(path), key)
                       for option, name in fields(corpus).items()]  # fmt: skip
            for batch in table.iter_batches(batch_size=256, columns=columns):
                for record in batch.to_pylist():
                    yield f"{path}, row {row}", record
                    row += 1
        except (arrow.ArrowException, OSError) as error:
            raise ConfigError(f"{path} is no parquet file ({error}): write it again") from error


def fields(corpus: Corpus) -> dict[str, str]:
    """The options that name a field of this corpus's records, and the fields they name."""
    if corpus.messages_field:
        return {"messages_field": corpus.messages_field}
    text = {"text_field": corpus.text_field or "text"}
    return {"prompt_field": corpus.prompt_field, **text} if corpus.prompt_field else text


def pieces(
    record: Record, corpus: Corpus, template: chat.Template, where: str, key: str
) -> Iterator[Piece]:
    """The document of a record."""
    names = fields(corpus)
    values = {
        option: record[_known(option, name, list(record), where, key)]
        for option, name in names.items()
    }
    if "messages_field" in values:
        yield from chat.pieces(_messages(values["messages_field"], where), template, where)
        return
    for option, value in values.items():
        if not isinstance(value, str):
            raise ConfigError(
                f"{key}.{option}={names[option]} is {type(value).__name__} in {where}: "
                "name a field that holds text"
            )
        text = option == "text_field"
        yield Piece(value, learned=text, ends=text)


def _known(option: str, name: str, names: list[str], where: str, key: str) -> str:
    if name in names:
        return name
    there = ", ".join(names) or "no field"
    raise ConfigError(f"{key}.{option}={name} is not in {where}: it has {there}")


def _messages(value: Any, where: str) -> chat.Messages:
    """A conversation, once it is known to be a list of {role, content}."""
    if isinstance(value, list) and all(
        isinstance(turn, dict) and isinstance(turn.get("content"), str) and "role" in turn
        for turn in value
    ):
        return value
    raise ConfigError(f"{where}: its messages are no list of {{role, content}}: mend the record")
