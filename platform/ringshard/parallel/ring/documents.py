"""Documents of a packed row as bounds: int64 [0, b_1, …, S], strictly increasing.

Document d holds the tokens [bounds[d], bounds[d + 1]). Padding is a document of its own, the last.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

Ints = npt.NDArray[np.int64]


def bounds_of_lengths(lengths: Sequence[int]) -> Ints:
    """Bounds of documents of these lengths [tokens], in order; an empty document is none."""
    ends = np.cumsum(np.asarray(lengths, dtype=np.int64))
    return np.unique(np.concatenate([[0], ends])).astype(np.int64)


def bounds_of_positions(positions: Tensor) -> list[Ints]:
    """Bounds of each row of positions (B, S): a document begins wherever they don't go up by 1."""
    grid = positions.numpy()
    return [_from_starts(np.diff(row) != 1, len(row)) for row in grid]


def bounds_of_ids(documents: Tensor) -> list[Ints]:
    """Bounds of each row of document numbers (B, S): a document begins where the number changes."""
    grid = documents.numpy()
    return [_from_starts(np.diff(row) != 0, len(row)) for row in grid]


def padded(bounds: Ints, length: int) -> Ints:
    """The bounds of the row when it is padded to `length` tokens."""
    if length < bounds[-1]:
        raise ValueError(f"a row of {bounds[-1]} tokens can't be padded to {length}")
    return bounds if length == bounds[-1] else np.append(bounds, np.int64(length))


def positions_of(bounds: Ints) -> Ints:
    """Position of each token (S,) in its document, from 0."""
    starts = np.repeat(bounds[:-1], np.diff(bounds))  # (S,)
    return np.arange(bounds[-1], dtype=np.int64) - starts


def document_of(bounds: Ints, tokens: Ints) -> Ints:
    """Number of the document that holds each of `tokens` (N,)."""
    return np.searchsorted(bounds, tokens, side="right").astype(np.int64) - 1


def pairs_before(bounds: Ints, tokens: Ints) -> Ints:
    """(query, key) pairs of all queries before each of `tokens` (N,), causal in their document.

    A document of n tokens has n(n + 1)/2.
    """
    sizes = np.diff(bounds)
    whole = np.concatenate([[0], np.cumsum(sizes * (sizes + 1) // 2)])
    document = np.minimum(document_of(bounds, tokens), len(sizes) - 1)
    inside = tokens - bounds[document]
    return np.asarray(whole[document] + inside * (inside + 1) // 2, dtype=np.int64)


def _from_starts(is_start: npt.NDArray[np.bool_], length: int) -> Ints:
    """is_start (S - 1,): whether token t + 1 begins a document."""
    return np.concatenate([[0], np.flatnonzero(is_start) + 1, [length]]).astype(np.int64)
