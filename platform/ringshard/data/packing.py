"""How the documents of a split become rows of `seq_len` + 1 tokens.

The index of a split is an int64 array of three lines: start and end of each span of the store, and
how many tokens (concat) or rows (none) there are up to its end. Neighbouring rows share one token,
the last target of one being the first input of the next: each token but a first is a target once.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ringshard.config.schema.data import Packing
from ringshard.data.split import Spans, joined

Index = NDArray[np.int64]


class Layout(Protocol):
    """Rows as slices of a token store."""

    rows: int
    apart: bool
    """Whether each slice is a document of its own; else the row is one document."""

    def slices(self, row: int) -> list[slice]:
        """The slices of the store that make up a row, up to seq_len + 1 tokens together."""
        ...


def index(spans: Spans, packing: Packing, seq_len: int) -> Index:
    """What `layout` needs to know of a split, (3, spans)."""
    if packing is Packing.concat:
        spans = joined(spans)
        counts = spans.end - spans.start
    else:
        targets = spans.end - spans.start - 1
        spans = Spans(spans.start[targets > 0], spans.end[targets > 0])
        counts = -(-targets[targets > 0] // seq_len)
    return np.stack([spans.start, spans.end, np.cumsum(counts)])  # (3, spans)


def layout(index: Index, packing: Packing, seq_len: int) -> Layout:
    """The rows of an index."""
    return Concat(index, seq_len) if packing is Packing.concat else Single(index, seq_len)


class Concat:
    """Spans end to end, cut every `seq_len` tokens; a rest that fills no row is left out."""

    apart = False

    def __init__(self, index: Index, seq_len: int) -> None:
        self._start, self._end, self._through = index
        self._seq_len = seq_len
        total = int(self._through[-1]) if self._through.size else 0
        self.rows = max(0, (total - 1) // seq_len)

    def slices(self, row: int) -> list[slice]:
        """See Layout."""
        position, missing, result = row * self._seq_len, self._seq_len + 1, []
        span = int(np.searchsorted(self._through, position, side="right"))
        while missing:
            end = int(self._end[span])
            start = end - (int(self._through[span]) - position)
            taken = slice(start, min(end, start + missing))
            result.append(taken)
            position, missing = position + taken.stop - start, missing - (taken.stop - start)
            span += 1
        return result


class Single:
    """One document a row; a longer one fills several rows, the last of which is padded."""

    apart = True

    def __init__(self, index: Index, seq_len: int) -> None:
        self._start, self._end, self._through = index
        self._seq_len = seq_len
        self.rows = int(self._through[-1]) if self._through.size else 0

    def slices(self, row: int) -> list[slice]:
        """See Layout."""
        span = int(np.searchsorted(self._through, row, side="right"))
        before = int(self._through[span - 1]) if span else 0
        start = int(self._start[span]) + (row - before) * self._seq_len
        return [slice(start, min(int(self._end[span]), start + self._seq_len + 1))]
