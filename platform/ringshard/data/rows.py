"""The prepared folder: an index of rows for each corpus and split, and what is known of them."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from ringshard.config.schema.data import Data, Packing
from ringshard.data import packing
from ringshard.data.entropy import LARGEST_VOCABULARY, bigram
from ringshard.data.split import BLOCK, Spans, divide, joined
from ringshard.data.store import Store
from ringshard.data.tokenizer import Ids, Tokenizer
from ringshard.errors import ConfigError

_BLOCK = 1 << 20  # tokens counted at a time

Pairs = tuple[Ids, Ids]
"""Tokens and the ones that follow them."""


class TokenizedCorpus(NamedTuple):
    """One corpus of the mixture."""

    weight: float
    folder: Path
    store: Store


Mixture = dict[str, TokenizedCorpus]
"""The corpora by name."""


def digest(data: Data, mixture: Mixture) -> str:
    """The digest of all that decides what row k is, but the seed."""
    return hashed(
        data.seq_len,
        data.packing.name,
        BLOCK,
        data.split.name,
        data.validation_share,
        [[name, corpus.weight, corpus.store.digest] for name, corpus in mixture.items()],
    )


def write(folder: Path, data: Data, mixture: Mixture, tokenizer: Tokenizer) -> None:
    """Fill the prepared folder; raises ConfigError if a split has less than one row."""
    packed = {which: {name: _index(folder / f"{name}-{which}", corpus.store, data, validation)
                      for name, corpus in mixture.items()}
              for which, validation in (("train", False), ("validation", True))}  # fmt: skip
    _refuse_empty(data, mixture, packed)
    tokenizer.save(folder)
    metadata = {
        "digest": digest(data, mixture),
        "vocab_size": tokenizer.vocab_size,
        "end": tokenizer.end,
        "seq_len": data.seq_len,
        "packing": data.packing.name,
        "corpora": {
            name: {"weight": corpus.weight, "store": os.path.relpath(corpus.folder, folder)}
            for name, corpus in mixture.items()
        },
        "documents": sum(corpus.store.metadata["documents"] for corpus in mixture.values()),
        "tokens": sum(len(corpus.store.tokens) for corpus in mixture.values()),
        "train_rows": sum(each.rows for each in packed["train"].values()),
        "validation_rows": sum(each.rows for each in packed["validation"].values()),
        "train_padding": _mean(
            (corpus.weight, packed["train"][name].padding) for name, corpus in mixture.items()
        ),
        "validation_padding": _mean(packed["validation"].values()),
        "bigram_entropy": _bigram_entropy(mixture, data, tokenizer.vocab_size),
    }
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=1), encoding="utf-8")


class _Packed(NamedTuple):
    """A corpus in a split."""

    rows: int
    padding: float
    """Share of the inputs."""


def _index(folder: Path, store: Store, data: Data, validation: bool) -> _Packed:
    """Write the index of a split and return what its rows are."""
    spans = _divided(store, data, validation)
    padding = packing.write(folder, spans, data.packing, data.seq_len)
    rows = packing.read(folder, data.packing, data.seq_len).rows
    return _Packed(rows, padding / (rows * data.seq_len) if rows else 0.0)


def _divided(store: Store, data: Data, validation: bool) -> Iterator[Spans]:
    return divide(store.bounds, data.split, data.validation_share, validation)


def _mean(weighted: Iterable[tuple[float, float]]) -> float:
    """Mean of (weight, value)."""
    weights, values = zip(*weighted, strict=True)
    return float(np.average(values, weights=weights))


def _refuse_empty(data: Data, mixture: Mixture, packed: dict[str, dict[str, _Packed]]) -> None:
    """Each corpus needs a row to train on, and all of them together one to validate on."""
    short = data.packing is Packing.concat  # other packings pad a row
    for name, found in packed["train"].items():
        if found.rows:
            continue
        size = _size({name: mixture[name]})
        if short:
            raise ConfigError(
                f"data.seq_len={data.seq_len} is too long for data.corpora.{name}, which has "
                f"{size} and no row to train on: shorten it or give more text"
            )
        raise ConfigError(
            f"data.packing={data.packing.name} finds no document of two tokens or more to train on "
            f"in data.corpora.{name}, which has {size}: lower data.validation_share or give more "
            "text"
        )
    if not any(found.rows for found in packed["validation"].values()):
        row = f"row of data.seq_len={data.seq_len}" if short else "document of two tokens or more"
        raise ConfigError(
            f"data.validation_share={data.validation_share} of {_size(mixture)} leaves no {row} "
            f"for validation: set data.split=position, {'shorten the rows, ' if short else ''}"
            "or raise the share"
        )


def _size(mixture: Mixture) -> str:
    documents = sum(corpus.store.metadata["documents"] for corpus in mixture.values())
    tokens = sum(len(corpus.store.tokens) for corpus in mixture.values())
    return f"{tokens} tokens in {documents} document{'s' * (documents != 1)}"


def _bigram_entropy(mixture: Mixture, data: Data, vocab_size: int) -> float | None:
    if vocab_size > LARGEST_VOCABULARY:
        return None
    apart = data.packing is not Packing.concat
    pairs = (
        pair
        for corpus in mixture.values()
        for pair in _pairs(corpus.store, _divided(corpus.store, data, validation=True), apart)
    )
    return bigram(_together(pairs), vocab_size)


def _pairs(store: Store, blocks: Iterable[Spans], apart: bool) -> Iterator[Pairs]:
    """Each token that is learned with the one before it, within the spans.

    The first token of a document is no target where documents are kept apart.
    """
    through = -1
    for spans in blocks:
        for start, end in zip(*joined(spans), strict=True):
            begin = int(start) - (start == through)  # one token more where blocks meet
            through = end
            for first in range(begin, int(end) - 1, _BLOCK):
                block = slice(first, min(int(end), first + _BLOCK + 1))
                tokens = np.asarray(store.tokens[block])
                chosen = np.ones(len(tokens), bool)
                if store.loss_mask is not None:
                    chosen &= store.loss_mask[block]
                if apart:
                    begun = slice(*np.searchsorted(spans.start, [block.start, block.stop]))
                    chosen[spans.start[begun] - block.start] = False
                yield tokens[:-1][chosen[1:]], tokens[1:][chosen[1:]]
        store.forget()


def _together(pairs: Iterable[Pairs]) -> Iterator[Pairs]:
    """The same pairs in blocks of `_BLOCK` or more: to count a block takes vocab² at the least."""
    held: list[Pairs] = []
    count = 0
    for pair in pairs:
        held.append(pair)
        count += len(pair[0])
        if count >= _BLOCK:
            yield _joined(held)
            held, count = [], 0
    if held:
        yield _joined(held)


def _joined(pairs: list[Pairs]) -> Pairs:
    previous, following = zip(*pairs, strict=True)
    return np.concatenate(previous), np.concatenate(following)


def hashed(*parts: Any) -> str:
    """A digest of plain data."""
    return xxhash.xxh3_128_hexdigest(json.dumps(parts, sort_keys=True).encode())
