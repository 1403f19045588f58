"""The prepared folder: an index of rows for each corpus and split, and what is known of them."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from ringshard.config.schema.data import Data
from ringshard.data import packing
from ringshard.data.entropy import LARGEST_VOCABULARY, bigram
from ringshard.data.split import Spans, divide, joined
from ringshard.data.store import Store
from ringshard.data.tokenizer import Ids, Tokenizer
from ringshard.errors import ConfigError

_BLOCK = 1 << 22  # tokens counted at a time


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
        data.split.name,
        data.validation_share,
        [[name, corpus.weight, corpus.store.digest] for name, corpus in mixture.items()],
    )


def write(folder: Path, data: Data, mixture: Mixture, tokenizer: Tokenizer) -> None:
    """Fill the prepared folder; raises ConfigError if a split has less than one row."""
    splits = {name: divide(corpus.store.bounds, data.split, data.validation_share)
              for name, corpus in mixture.items()}  # fmt: skip
    rows = {which: {name: _index(folder / f"{name}-{which}.npy", spans[which], data)
                    for name, spans in splits.items()}
            for which in ("train", "validation")}  # fmt: skip
    _refuse_empty(data, mixture, rows)
    apart = {name: spans["validation"] for name, spans in splits.items()}
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
        "train_rows": sum(rows["train"].values()),
        "validation_rows": sum(rows["validation"].values()),
        "bigram_entropy": _bigram_entropy(mixture, apart, tokenizer.vocab_size),
    }
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=1), encoding="utf-8")


def _index(file: Path, spans: Spans, data: Data) -> int:
    """Write the index of a split and return its number of rows."""
    index = packing.index(spans, data.packing, data.seq_len)
    np.save(file, index)
    return packing.layout(index, data.packing, data.seq_len).rows


def _refuse_empty(data: Data, mixture: Mixture, rows: dict[str, dict[str, int]]) -> None:
    """Each corpus needs a row to train on, and all of them together one to validate on."""
    for name, count in rows["train"].items():
        if not count:
            raise ConfigError(
                f"data.seq_len={data.seq_len} is too long for data.corpora.{name}, which has "
                f"{len(mixture[name].store.tokens)} tokens and no row to train on: "
                "shorten it or give more text"
            )
    if not any(rows["validation"].values()):
        raise ConfigError(
            f"data.validation_share={data.validation_share} of {_size(mixture)} leaves no row of "
            f"data.seq_len={data.seq_len} for validation: raise the share, shorten the rows, "
            "or set data.split=position"
        )


def _size(mixture: Mixture) -> str:
    documents = sum(corpus.store.metadata["documents"] for corpus in mixture.values())
    tokens = sum(len(corpus.store.tokens) for corpus in mixture.values())
    return f"{documents} documents with {tokens} tokens"


def _bigram_entropy(mixture: Mixture, spans: dict[str, Spans], vocab_size: int) -> float | None:
    if vocab_size > LARGEST_VOCABULARY:
        return None
    pairs = (pair for name, corpus in mixture.items() for pair in _pairs(corpus.store, spans[name]))
    return bigram(pairs, vocab_size)


def _pairs(store: Store, spans: Spans) -> Iterator[tuple[Ids, Ids]]:
    """Each token that is learned with the one before it, within the spans."""
    for start, end in zip(*joined(spans), strict=True):
        for first in range(int(start), int(end) - 1, _BLOCK):
            block = slice(first, min(int(end), first + _BLOCK + 1))
            tokens = np.asarray(store.tokens[block], dtype=np.int64)
            chosen = slice(None) if store.loss_mask is None else store.loss_mask[block][1:]
            yield tokens[:-1][chosen], tokens[1:][chosen]


def hashed(*parts: Any) -> str:
    """A digest of plain data."""
    return xxhash.xxh3_128_hexdigest(json.dumps(parts, sort_keys=True).encode())
