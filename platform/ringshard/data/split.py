"""Which parts of a token store are trained on, and which are set apart for validation."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringshard.config.schema.data import Split
from ringshard.data.order import keyed

_BLOCK = 1 << 20  # documents looked at together


class Spans(NamedTuple):
    """Half-open ranges of a token store, in order."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]


def divide(bounds: NDArray[np.int64], split: Split, share: float) -> dict[str, Spans]:
    """The documents of either split; document i is store[bounds[i]:bounds[i + 1]].

    `position` cuts at token floor(n * (1 - share)), also in the middle of a document.
    """
    if split is Split.document:
        apart = held_out(len(bounds) - 1, share)
        return {
            "train": Spans(bounds[:-1][~apart], bounds[1:][~apart]),
            "validation": Spans(bounds[:-1][apart], bounds[1:][apart]),
        }
    start, end, cut = bounds[:-1], bounds[1:], int(bounds[-1] * (1 - share))
    before, through = np.searchsorted(start, cut), np.searchsorted(end, cut, side="right")
    return {
        "train": Spans(start[:before], np.minimum(end[:before], cut)),
        "validation": Spans(np.maximum(start[through:], cut), end[through:]),
    }


def held_out(documents: int, share: float) -> NDArray[np.bool_]:
    """Whether each document is for validation: a pure function of its index and the share."""
    apart = np.empty(documents, dtype=np.bool_)
    for first in range(0, documents, _BLOCK):  # there may be a document a line
        block = apart[first : first + _BLOCK]
        block[:] = keyed(np.arange(first, first + len(block))) < np.uint64(share * 2.0**64)
    return apart


def joined(spans: Spans) -> Spans:
    """The same tokens in as few spans as possible."""
    gap = spans.start[1:] != spans.end[:-1]
    first, last = np.append(True, gap)[: len(spans.start)], np.append(gap, True)
    return Spans(spans.start[first], spans.end[last[: len(spans.end)]])
