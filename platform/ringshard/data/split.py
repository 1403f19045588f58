"""Which parts of a token store are trained on, and which are set apart for validation."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringshard.config.schema.data import Split
from ringshard.data.order import keyed

BLOCK = 1 << 20
"""Documents of a store that are looked at, and packed, together: there may be one a line."""


class Spans(NamedTuple):
    """Half-open ranges of a token store, in order."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]


def divide(
    bounds: NDArray[np.int64], split: Split, share: float, validation: bool
) -> Iterator[Spans]:
    """One part's documents, of each BLOCK of the store; document i is store[bounds[i]:bounds[i+1]].

    `position` cuts at token floor(n * (1 - share)), also in the middle of a document.
    """
    cut = int(bounds[-1] * (1 - share))
    for first in range(0, len(bounds) - 1, BLOCK):
        block = np.asarray(bounds[first : first + BLOCK + 1])
        start, end = block[:-1], block[1:]
        if split is Split.document:
            chosen = held_out(np.arange(first, first + len(start)), share) == validation
        elif validation:
            chosen, start = end > cut, np.maximum(start, cut)
        else:
            chosen, end = start < cut, np.minimum(end, cut)
        yield Spans(start[chosen], end[chosen])


def held_out(document: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """Whether each document is for validation: a pure function of its index and the share."""
    return keyed(document) < np.uint64(share * 2.0**64)


def joined(spans: Spans) -> Spans:
    """The same tokens in as few spans as possible."""
    gap = spans.start[1:] != spans.end[:-1]
    first, last = np.append(True, gap)[: len(spans.start)], np.append(gap, True)
    return Spans(spans.start[first], spans.end[last[: len(spans.end)]])
