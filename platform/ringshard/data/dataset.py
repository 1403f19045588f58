"""Prepared data as rows: row k of a split, for any k, with no state in between."""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringshard.config.schema.data import Packing
from ringshard.data import mixture, packing, tokenizer
from ringshard.data.order import keyed, permute
from ringshard.data.store import Store
from ringshard.errors import ConfigError


class Rows(NamedTuple):
    """B rows of S + 1 tokens: inputs tokens[:, :-1], targets tokens[:, 1:]."""

    tokens: NDArray[np.int64]
    """(B, S + 1)"""
    loss_mask: NDArray[np.bool_]
    """(B, S): whether target tokens[b, s + 1] counts."""
    corpus: NDArray[np.int64]
    """(B,): position of the row's corpus in `Dataset.corpora`."""
    bounds: list[NDArray[np.int64]]
    """B of them, 0 = b_0 < b_1 < … < b_n = S: document d of the row is inputs [b_d, b_(d+1)).

    Tokens attend to those of their own document alone. Padding is a document, the last.
    """
    padding: NDArray[np.int64]
    """(B,): inputs that are of no document, at the end."""


def concatenated(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, in order."""
    return Rows(
        tokens=np.concatenate([part.tokens for part in parts]),
        loss_mask=np.concatenate([part.loss_mask for part in parts]),
        corpus=np.concatenate([part.corpus for part in parts]),
        bounds=[bounds for part in parts for bounds in part.bounds],
        padding=np.concatenate([part.padding for part in parts]),
    )


class Dataset:
    """The rows of one split ("train" or "validation").

    Row k is a pure function of (digest, seq_len, packing, seed, k). Training goes on for ever: each
    corpus is permuted anew each time it has been read whole. Validation is read once, in one order.
    """

    def __init__(self, prepared: Path, split: str, seed: int) -> None:
        """Raises ConfigError if the prepared data are gone or damaged."""
        self._folder, self._split, self._seed = prepared, split, seed
        self._metadata = _metadata(prepared)
        self.digest: str = self._metadata["digest"]
        self.vocab_size: int = self._metadata["vocab_size"]
        self.seq_len: int = self._metadata["seq_len"]
        self.bigram_entropy: float | None = self._metadata["bigram_entropy"]
        self.end: int | None = self._metadata["end"]
        """Token id of the end of a document; null: the vocabulary has none."""
        self.corpora: list[str] = list(self._metadata["corpora"])
        self._packed = [self._open(name) for name in self.corpora]
        self._rows = np.array([corpus.rows for corpus in self._packed])
        self.rows = int(self._rows.sum())
        """Rows of the split; as many rows of a mixture are one epoch."""
        self.padding: float = self._metadata[f"{split}_padding"]
        """Share of padding among the inputs of all rows read."""
        weights = {name: about["weight"] for name, about in self._metadata["corpora"].items()}
        self._shares = mixture.shares(weights)

    def _open(self, name: str) -> "_PackedCorpus":
        about = self._metadata["corpora"][name]
        store = Store((self._folder / about["store"]).resolve())
        rule = Packing[self._metadata["packing"]]
        layout = packing.read(self._folder / f"{name}-{self._split}", rule, self.seq_len)
        return _PackedCorpus(store, layout)

    def read(self, first: int, last: int) -> Rows:
        """Rows first … last - 1; validation has `rows` of them, training any number."""
        row = np.arange(first, last)
        corpus, place = self._place(row)
        pad = self.end or 0
        tokens = np.full((len(row), self.seq_len + 1), pad, dtype=np.int64)  # (B, S + 1)
        loss_mask = np.zeros(tokens.shape, dtype=np.bool_)
        filled = [
            self._packed[which].fill(int(at), *into)
            for which, at, *into in zip(corpus, place, tokens, loss_mask, strict=True)
        ]
        bounds = [each for each, _ in filled]
        padding = np.array([left for _, left in filled], dtype=np.int64)
        return Rows(tokens, loss_mask[:, 1:], corpus, bounds, padding)

    def _place(self, row: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The corpus of each row, and the row's number in it."""
        if self._split == "validation":
            return self._validation_place(row)
        corpus, count = mixture.assign(row, self._shares)
        epoch, position = np.divmod(count, self._rows[corpus])
        key = keyed(self._seed, corpus, epoch)
        for which, size in enumerate(self._rows):
            mine = corpus == which
            position[mine] = permute(position[mine], int(size), key[mine])
        return corpus, position

    def _validation_place(
        self, row: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """One fixed permutation of all corpora together: the first rows are a fair sample."""
        if len(row) and row[-1] >= self.rows:
            raise IndexError(f"row {row[-1]} of {self.rows} rows for validation")
        place = permute(row, self.rows, keyed(0))
        ends = np.cumsum(self._rows)
        corpus = np.searchsorted(ends, place, side="right")
        return corpus, place - (ends - self._rows)[corpus]

    @cached_property
    def _tokenizer(self) -> tokenizer.Tokenizer:
        return tokenizer.load(self._folder)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without an end of document."""
        return [int(number) for number in self._tokenizer.encode([text], [False])[0]]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of token ids."""
        return self._tokenizer.decode([int(number) for number in ids])


class _PackedCorpus(NamedTuple):
    """One corpus of a split."""

    store: Store
    layout: packing.Layout

    @property
    def rows(self) -> int:
        return self.layout.rows

    def fill(
        self, row: int, tokens: NDArray[np.int64], loss_mask: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], int]:
        """Copy a row (S + 1,) and return the bounds of its documents over the S inputs, and how
        many inputs are padding.

        What it does not fill stays as it is: padding that is not learned.
        """
        inputs, ends, at = len(tokens) - 1, [0], 0
        for piece in self.layout.slices(row):
            to = slice(at, at + piece.stop - piece.start)
            tokens[to] = self.store.tokens[piece]
            loss_mask[to] = True if self.store.loss_mask is None else self.store.loss_mask[piece]
            if self.layout.apart:
                loss_mask[at] = False  # nothing before it tells what a document begins with
                ends.append(min(to.stop, inputs))
            at = to.stop
        if ends[-1] < inputs:
            ends.append(inputs)
        return np.array(ends), max(inputs - at, 0)


def _metadata(prepared: Path) -> dict[str, Any]:
    file = prepared / "metadata.json"
    if not file.is_file():
        raise ConfigError(
            f"data.prepared={prepared} is gone: prepare the data again (jobs/prepare.py)"
        )
    metadata: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return metadata
