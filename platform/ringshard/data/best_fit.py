"""Best-fit decreasing: pieces into rows of one length, in about n log n.

Each piece, the longest first, goes where the least room is left that holds it; only where there is
none a row is opened. At most 11/9 of the fewest rows there could be, and 4 (Johnson et al. 1974,
doi 10.1137/0203025); for text: Ding et al. 2024, arXiv 2404.10830.
"""

from bisect import bisect_left, insort

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def best_fit(sizes: Ints, length: int) -> Ints:
    """The row of each piece (n,), from 0; the pieces' sizes (n,) are 1 … `length` [tokens].

    Pieces of one size in the order given: the same sizes give the same rows.
    """
    if not sizes.size:
        return np.empty(0, dtype=np.int64)
    kinds, counts = np.unique(sizes, return_counts=True)
    rows = _Rows(length, int(kinds[0]))
    for size, count in zip(kinds[::-1].tolist(), counts[::-1].tolist(), strict=True):
        rows.place(size, count)
    placed = np.empty(len(sizes), dtype=np.int64)
    placed[np.argsort(-sizes, kind="stable")] = rows.of_pieces()
    return placed


class _Rows:
    """Open rows by the room left in them; rows alike and numbered in a row are one range.

    So one turn places as many pieces of a size as fill a whole range: a million documents of a few
    thousand sizes take fewer turns than that.
    """

    def __init__(self, length: int, smallest: int) -> None:
        self._length, self._smallest = length, smallest
        self._opened = 0
        self._rooms: list[int] = []  # sorted
        self._ranges: dict[int, list[tuple[int, int]]] = {}  # by room: (first row, rows)
        self._turns: list[tuple[int, int, int]] = []  # first row, rows, pieces in each

    def place(self, size: int, count: int) -> None:
        """Place `count` pieces of `size`, no longer than the ones before."""
        while count:
            room, first, rows = self._tightest(size, count)
            each = min(room // size, count)
            used = min(rows, count // each)
            self._keep(room, first + used, rows - used)
            self._keep(room - each * size, first, used)
            self._turns.append((first, used, each))
            count -= each * used

    def _tightest(self, size: int, count: int) -> tuple[int, int, int]:
        """Take a range out whose rows have the least room for `size`, or open one for `count`."""
        at = bisect_left(self._rooms, size)
        if at == len(self._rooms):
            first, rows = self._opened, -(-count // (self._length // size))
            self._opened += rows
            return self._length, first, rows
        room = self._rooms[at]
        first, rows = self._ranges[room].pop()
        if not self._ranges[room]:
            del self._rooms[at], self._ranges[room]
        return room, first, rows

    def _keep(self, room: int, first: int, rows: int) -> None:
        if not rows or room < self._smallest:
            return
        if room not in self._ranges:
            insort(self._rooms, room)
            self._ranges[room] = []
        self._ranges[room].append((first, rows))

    def of_pieces(self) -> Ints:
        """The row of each piece, in the order in which they were placed."""
        first, rows, each = np.array(self._turns, dtype=np.int64).T  # (turns,)
        before = np.cumsum(rows) - rows
        row = np.arange(rows.sum()) + np.repeat(first - before, rows)
        return np.repeat(row, np.repeat(each, rows))
