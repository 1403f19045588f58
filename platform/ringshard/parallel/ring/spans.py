"""Segments of one step laid end to end, for a kernel that takes many of different lengths at once.

Rows are flattened: a token is row · S + place. Segments go row by row, so that those of the first
step, which are all the tokens of a rank, lie as they lay. A key that two segments need is laid down
twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ringshard.parallel.ring.documents import Ints
from ringshard.parallel.ring.plan import Segment

Index = slice | Tensor
"""Flat indices (T,) int64; a slice, which makes views, where they follow one another."""


@dataclass(frozen=True)
class Spans:
    """Where the segments are; tensors on the device of the keys."""

    queries: Index
    """Of each query laid down; none occurs twice."""
    keys: Index
    """Of each key laid down."""
    query_ends: Tensor
    """0, and where each segment's queries end (segments + 1,) int32."""
    key_ends: Tensor
    """0, and where each segment's keys end (segments + 1,) int32."""
    longest_queries: int
    """Queries of the longest segment."""
    longest_keys: int
    """Keys of the longest segment."""

    def slices(self) -> Iterator[tuple[slice, slice]]:
        """Queries and keys of each segment."""
        ends = zip(self.query_ends.tolist(), self.key_ends.tolist(), strict=True)
        for (q0, k0), (q1, k1) in pairwise(ends):
            yield slice(q0, q1), slice(k0, k1)


@lru_cache(maxsize=128)
def lay_out(segments: tuple[Segment, ...], length: int, device: torch.device) -> Spans:
    """The spans of segments of one step, in rows of `length` tokens; made once a batch.

    A rank of 16k tokens keeps some 100 KB a step.
    """
    of_rows = [(row, segment) for segment in segments for row in range(segment.row0, segment.row1)]
    of_rows.sort(key=lambda of_row: of_row[0])
    rows = np.array([row for row, _ in of_rows]) * length
    queries = np.array([(segment.q0, segment.q1) for _, segment in of_rows]).T + rows
    keys = np.array([(segment.k0, segment.k1) for _, segment in of_rows]).T + rows  # (2, segments)
    q_sizes, k_sizes = queries[1] - queries[0], keys[1] - keys[0]
    return Spans(
        queries=_index(queries, device),
        keys=_index(keys, device),
        query_ends=_put(_ends(q_sizes), device),
        key_ends=_put(_ends(k_sizes), device),
        longest_queries=int(q_sizes.max()),
        longest_keys=int(k_sizes.max()),
    )


def _index(ranges: Ints, device: torch.device) -> Index:
    """begin[0], …, end[0] - 1, begin[1], … of ranges (2, n)."""
    begin, end = ranges
    if (begin[1:] == end[:-1]).all():
        return slice(int(begin[0]), int(end[-1]))
    places = [np.arange(b, e) for b, e in zip(begin, end, strict=True)]
    return _put(np.concatenate(places), device)


def _ends(sizes: Sequence[int] | Ints) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


def _put(
    array: np.ndarray[tuple[int], np.dtype[np.int64 | np.int32]], device: torch.device
) -> Tensor:
    """Pinned memory is copied without waiting for the device."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
