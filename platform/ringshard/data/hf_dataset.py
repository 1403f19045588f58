"""Data sets of the `datasets` library, from its hub or a folder, streamed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ringshard.config.schema.data import Corpus
from ringshard.data import files
from ringshard.data.records import Record
from ringshard.errors import ConfigError, first_line

Read = Callable[[], Iterator[tuple[str, Record]]]


def opened(corpus: Corpus, key: str) -> tuple[Read, Callable[[], Any]]:
    """How to read the examples, and what changes with them (the hub's commit, a folder's files)."""
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            f"{key}.kind=hf_dataset needs the datasets package: pip install 'ringshard[datasets]'"
        ) from error
    subset = corpus.subset or "train"
    try:
        builder = datasets.load_dataset_builder(corpus.path, corpus.name)
        stream = datasets.load_dataset(corpus.path, corpus.name, split=subset, streaming=True)
    except Exception as error:  # whatever datasets and its network libraries raise
        raise _unreadable(error, corpus, key) from error

    def read() -> Iterator[tuple[str, Record]]:
        try:
            for number, example in enumerate(stream):
                yield f"example {number} of {corpus.path}", example
        except Exception as error:
            raise _unreadable(error, corpus, key) from error

    def fingerprint() -> Any:
        if Path(str(corpus.path)).is_dir():
            return files.fingerprint(files.found(str(corpus.path), f"{key}.path"))
        return [builder.hash, builder.config_id, subset]  # the hub's commit is the hash

    return read, fingerprint


def _unreadable(error: Exception, corpus: Corpus, key: str) -> ConfigError:
    return ConfigError(f"{key}.path={corpus.path} could not be read: {first_line(error)}")
