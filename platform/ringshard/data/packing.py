"""How the documents of a split become rows of `seq_len` + 1 tokens.

The index of a split is an int64 array of three lines: start and end of each span of the store, and
how many tokens (concat) or rows (none) there are up to its end, or its row (documents). Rows that
follow each other in a text share one token, the last target of one being the first input of the
next: each token but a first is a target once.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ringshard.config.schema.data import Packing
from ringshard.data.best_fit import best_fit
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

    def filled(self) -> int:
        """Inputs of all rows that are no padding."""
        ...


def index(spans: Spans, packing: Packing, seq_len: int) -> Index:
    """What `layout` needs to know of a split, (3, spans)."""
    if packing is Packing.concat:
        spans = joined(spans)
        return np.stack([spans.start, spans.end, np.cumsum(spans.end - spans.start)])
    learnable = spans.end - spans.start > 1
    spans = Spans(spans.start[learnable], spans.end[learnable])
    rows = -(-(spans.end - spans.start - 1) // seq_len)  # of each document, if it has its own
    if packing is Packing.none:
        return np.stack([spans.start, spans.end, np.cumsum(rows)])
    pieces = _cut(spans, rows, seq_len)
    row = best_fit(pieces.end - pieces.start, seq_len + 1)
    order = np.lexsort((pieces.start, row))
    return np.stack([pieces.start, pieces.end, row])[:, order]


def _cut(spans: Spans, pieces: NDArray[np.int64], seq_len: int) -> Spans:
    """Each document in as many pieces; all but its last have seq_len + 1 tokens."""
    number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = np.repeat(spans.start, pieces) + number * seq_len
    return Spans(start, np.minimum(np.repeat(spans.end, pieces), start + seq_len + 1))


def layout(index: Index, packing: Packing, seq_len: int) -> Layout:
    """The rows of an index."""
    kinds: dict[Packing, Callable[[Index, int], Layout]] = {
        Packing.documents: Packed,
        Packing.concat: Concat,
        Packing.none: Single,
    }
    return kinds[packing](index, seq_len)


class Packed:
    """Whole documents and pieces of longer ones, put together so that little is left over."""

    apart = True

    def __init__(self, index: Index, seq_len: int) -> None:
        self._start, self._end, self._row = index
        self._seq_len = seq_len
        self.rows = int(self._row[-1]) + 1 if self._row.size else 0

    def slices(self, row: int) -> list[slice]:
        """See Layout."""
        first, last = np.searchsorted(self._row, [row, row + 1])
        spans = zip(self._start[first:last].tolist(), self._end[first:last].tolist(), strict=True)
        return [slice(start, end) for start, end in spans]

    def filled(self) -> int:
        """See Layout."""
        tokens = np.bincount(self._row, self._end - self._start)  # (rows,)
        return int(np.minimum(tokens, self._seq_len).sum())


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

    def filled(self) -> int:
        """See Layout."""
        return self.rows * self._seq_len


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

    def filled(self) -> int:
        """See Layout."""
        rows = np.diff(self._through, prepend=0)
        return int(np.minimum(self._end - self._start, rows * self._seq_len).sum())
