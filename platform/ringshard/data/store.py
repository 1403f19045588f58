"""The token store: all tokens of a corpus in one memory-mapped file, with its documents' bounds."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from ringshard.data.arrays import Growing, forget, mapped
from ringshard.data.documents import Piece, filled
from ringshard.data.tokenizer import Ids, Tokenizer
from ringshard.errors import ConfigError

_BATCH = 1 << 21  # characters tokenized at a time


class Store:
    """A corpus as tokens; document i is tokens[bounds[i]:bounds[i + 1]], its end token included."""

    def __init__(self, folder: Path) -> None:
        self.metadata: dict[str, Any] = json.loads((folder / "metadata.json").read_text())
        self.digest: str = self.metadata["digest"]
        self.tokens = mapped(folder / "tokens.bin", self.metadata["dtype"])
        self.bounds = mapped(folder / "bounds.bin", "int64")
        self.loss_mask = (
            mapped(folder / "loss_mask.bin", "bool") if self.metadata["masked"] else None
        )
        if len(self.tokens) != self.metadata["tokens"]:
            raise ConfigError(f"{folder} is damaged: remove it, and it will be built again")

    def forget(self) -> None:
        """Gives back the memory of what was read."""
        for array in (self.tokens, self.bounds, self.loss_mask):
            if array is not None:
                forget(array)


def write(
    folder: Path,
    pieces: Iterable[Piece],
    tokenizer: Tokenizer,
    masked: bool,
    progress: Callable[[int, int], None],
) -> None:
    """Tokenize all documents into `folder`; `progress` is told of new documents and tokens."""
    dtype = np.dtype("uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32")
    tokens, bounds = Growing(folder / "tokens.bin", dtype), Growing(folder / "bounds.bin", np.int64)
    loss_mask = Growing(folder / "loss_mask.bin", np.bool_) if masked else None
    bounds.append(np.zeros(1, dtype=np.int64))
    targets = 0
    for batch in _batches(filled(pieces)):
        ids, mask, ends = _encode(batch, tokenizer)
        bounds.append(ends + tokens.length)
        tokens.append(ids)
        if loss_mask:
            loss_mask.append(mask)
        progress(len(ends), len(ids))
        targets += int(mask.sum())
    files = [file for file in (tokens, bounds, loss_mask) if file]
    metadata = {
        "digest": xxhash.xxh3_128_hexdigest("".join(file.close() for file in files).encode()),
        "documents": bounds.length - 1,
        "tokens": tokens.length,
        "targets": targets,
        "dtype": dtype.name,
        "masked": masked,
    }
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=1))


def _encode(
    batch: list[tuple[Piece, bool]], tokenizer: Tokenizer
) -> tuple[Ids, NDArray[np.bool_], NDArray[np.int64]]:
    """The tokens of a batch, whether each is learned, and where documents end among them."""
    texts = [piece.text for piece, _ in batch]
    ids, lengths = tokenizer.encode(texts, [continued for _, continued in batch])
    mask = np.repeat([piece.learned for piece, _ in batch], lengths)
    final = np.array([piece.ends for piece, _ in batch])
    ends = np.cumsum(lengths)[final]
    if tokenizer.end is None:
        return ids, mask, ends
    # The id may not fit the type of the others (bytes).
    ids = np.insert(ids.astype(np.uint32, copy=False), ends, tokenizer.end)
    mask = np.insert(mask, ends, [piece.learned for piece, _ in batch if piece.ends])
    return ids, mask, ends + np.arange(1, len(ends) + 1)


def _batches(pieces: Iterable[Piece]) -> Iterator[list[tuple[Piece, bool]]]:
    """Pieces, and whether each goes on with the one before, about `_BATCH` characters at a time."""
    batch: list[tuple[Piece, bool]] = []
    size, continued = 0, False
    for piece in pieces:
        batch.append((piece, continued))
        size, continued = size + len(piece.text) + 1, not piece.ends
        if size > _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
