"""How the documents of a split become rows of `seq_len` + 1 tokens.

The index of a split is three int64 arrays: start and end of each span of the store, and how many
tokens (concat) or rows (none) there are up to its end, or its row (documents). Rows that
follow each other in a text share one token, the last target of one being the first input of the
next: each token but a first is a target once.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ringshard.config.schema.data import Packing
from ringshard.data.arrays import Growing, mapped
from ringshard.data.best_fit import best_fit
from ringshard.data.split import Spans, joined

Index = Sequence[NDArray[np.int64]]
_ARRAYS = ("start.bin", "end.bin", "through.bin")


class Layout(Protocol):
    """Rows as slices of a token store."""

    rows: int
    apart: bool
    """Whether each slice is a document of its own; else the row is one document."""

    def slices(self, row: int) -> list[slice]:
        """The slices of the store that make up a row, up to seq_len + 1 tokens together."""
        ...

    def padding(self) -> int:
        """Inputs of all rows that are of no document."""
        ...


def write(folder: Path, blocks: Iterable[Spans], packing: Packing, seq_len: int) -> int:
    """Put the index of a split into a new folder; each block of its documents is packed by itself,
    so that memory does not depend on their number. Returns the padding of all rows [inputs]."""
    folder.mkdir()
    arrays = [Growing(folder / name, np.int64) for name in _ARRAYS]
    done = padding = 0
    for spans in blocks:
        block = index(spans, packing, seq_len)
        padding += layout([*block], packing, seq_len).padding()
        block[2] += done
        for array, values in zip(arrays, block, strict=True):
            array.append(values)
        if block.size:
            done = int(block[2, -1]) + (packing is Packing.documents)
    for array in arrays:
        array.close()
    return padding


def read(folder: Path, packing: Packing, seq_len: int) -> Layout:
    """The rows of what `write` has put there."""
    return layout([mapped(folder / name, "int64") for name in _ARRAYS], packing, seq_len)


def index(spans: Spans, packing: Packing, seq_len: int) -> NDArray[np.int64]:
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

    def padding(self) -> int:
        """See Layout."""
        tokens = np.bincount(self._row, self._end - self._start)  # (rows,)
        return int(np.maximum(self._seq_len - tokens, 0).sum())


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

    def padding(self) -> int:
        """See Layout."""
        return 0


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

    def padding(self) -> int:
        """See Layout."""
        rows = np.diff(self._through, prepend=0)
        return int(np.maximum(rows * self._seq_len - (self._end - self._start), 0).sum())
