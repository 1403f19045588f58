"""What a rank computes at each ring step: rectangles and causal squares, never a mask.

Of the documents before a query chunk only one reaches into it: that which holds both the chunk's
first token and the one before. It holds everything in between, so all queries it has in the chunk
need all keys from its start up to the chunk. Of one rank's keys, which are in global order, that is
one slice. Among a rank's own tokens a document is one slice as well, and causal order is the local
order: the first step is one causal square per document.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ringshard.parallel.ring.documents import Ints, document_of, pairs_before
from ringshard.parallel.ring.layout import Layout


class Segment(NamedTuple):
    """One kernel call: rows [row0, row1), local queries [q0, q1), keys [k0, k1) of the rank whose
    keys are at hand at `step`; causal if these are the same tokens, else unmasked."""

    step: int
    row0: int
    row1: int
    q0: int
    q1: int
    k0: int
    k1: int
    causal: int

    @property
    def pairs(self) -> int:
        """(query, key) pairs it computes."""
        queries, keys = self.q1 - self.q0, self.k1 - self.k0
        return (self.row1 - self.row0) * (
            queries * (queries + 1) // 2 if self.causal else queries * keys
        )


@dataclass(frozen=True)
class Plan:
    """The segments of one rank, ordered by step."""

    table: Ints
    """(segments, 8): the fields of a Segment."""

    def to_tensor(self) -> Tensor:
        """int64 CPU tensor (segments, 8), the form in which an operator takes it."""
        return torch.from_numpy(self.table)

    @staticmethod
    def from_tensor(tensor: Tensor) -> "Plan":
        """The inverse of `to_tensor`."""
        return Plan(tensor.numpy())

    def check(self, rows: int, length: int) -> None:
        """Raises RuntimeError unless it is a plan for that many rows and local tokens."""
        planned = (int(self.table[:, 2].max()), int(self.table[:, 4].max()))
        if planned != (rows, length):
            raise RuntimeError(
                f"the plan is for {planned[0]} rows of {planned[1]} tokens on each rank, and "
                f"attention was given {rows} of {length}: it is another batch's"
            )

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, in order."""
        return tuple(chain.from_iterable(self._by_step.values()))

    def at(self, step: int) -> tuple[Segment, ...]:
        """Segments of one step."""
        return self._by_step.get(step, ())

    @property
    def _by_step(self) -> dict[int, tuple[Segment, ...]]:
        return _parsed(np.ascontiguousarray(self.table).tobytes())


def build_plan(layout: Layout, rows: Sequence[Ints], rank: int) -> Plan:
    """The plan of `rank`; rows: bounds of each row, all of the layout's length.

    Neighbouring rows with the same documents share their segments. Linear in documents + chunks.
    """
    tables, row0 = [], 0
    for _, group in groupby(rows, key=lambda bounds: bounds.tobytes()):
        alike = list(group)
        assert alike[0][-1] == layout.length, f"{alike[0][-1]} tokens, layout {layout.length}"
        table = np.concatenate(
            [_squares(layout, alike[0], rank), _rectangles(layout, alike[0], rank)]
        )
        table[:, 1:3] = row0, row0 + len(alike)
        tables.append(table)
        row0 += len(alike)
    table = np.concatenate(tables)
    return Plan(table[np.argsort(table[:, 0], kind="stable")])


def _squares(layout: Layout, bounds: Ints, rank: int) -> Ints:
    """Step 0: the rank's own tokens, one causal square per document."""
    chunk, own = layout.chunk, np.array(layout.chunks[rank])
    starts = bounds[:-1][layout.owner[bounds[:-1] // chunk] == rank]
    local = layout.held[rank, starts // chunk] * chunk + starts % chunk
    last, first = own[:-1] * chunk + chunk - 1, own[1:] * chunk
    is_seam = document_of(bounds, first) != document_of(bounds, last)
    seams = np.arange(1, len(own))[is_seam] * chunk
    edges = np.unique(np.concatenate([[0, layout.local_length], local, seams]))
    begin, end = edges[:-1], edges[1:]
    return _table(np.zeros_like(begin), begin, end, begin, end, np.ones_like(begin))


def _rectangles(layout: Layout, bounds: Ints, rank: int) -> Ints:
    """The other steps: per query chunk, a slice of the keys of each other rank."""
    own = np.array(layout.chunks[rank])
    queries, k0, k1 = _reach(layout, bounds, own)
    step = np.broadcast_to((rank - np.arange(layout.cp))[:, None] % layout.cp, k0.shape)
    q0 = np.broadcast_to(np.arange(len(own)) * layout.chunk, k0.shape)
    q1 = q0 + queries
    needed = (k1 > k0) & (step > 0)
    fields = (step, q0, q1, k0, k1, np.zeros_like(k0))
    table = _table(*(field[needed] for field in fields))
    return _joined(table[np.lexsort((table[:, 3], table[:, 0]))])


def _reach(layout: Layout, bounds: Ints, chunks: Ints) -> tuple[Ints, Ints, Ints]:
    """How far the document that reaches into each of `chunks` (n,) goes.

    Returns the number of its queries in the chunk (n,), and the local keys [k0, k1) of each rank
    (cp, n) that they need and that lie before the chunk; k0 ≥ k1 where there are none.
    """
    size, first = layout.chunk, chunks * layout.chunk
    document = document_of(bounds, first)
    start = bounds[document]
    queries = np.minimum(bounds[document + 1], first + size) - first
    has_start = layout.owner[start // size] == np.arange(layout.cp)[:, None]  # (cp, n)
    k0 = layout.held[:, start // size] * size + np.where(has_start, start % size, 0)
    k1 = layout.held[:, chunks] * size
    return queries, k0, k1


def _joined(table: Ints) -> Ints:
    """Segments whose queries are neighbours and need the same keys become one."""
    if len(table) < 2:
        return table
    before, after = table[:-1], table[1:]
    same = (before[:, [0, 6, 5, 4]] == after[:, [0, 6, 5, 3]]).all(axis=1)
    is_first, is_last = np.append(True, ~same), np.append(~same, True)
    joined: Ints = table[is_first]
    joined[:, 4] = table[is_last, 4]
    return joined


def _table(step: Ints, q0: Ints, q1: Ints, k0: Ints, k1: Ints, causal: Ints) -> Ints:
    """(segments, 8), the rows still to be filled in."""
    unknown = np.zeros_like(step)
    return np.stack([step, unknown, unknown, q0, q1, k0, k1, causal], axis=1)


@lru_cache(maxsize=32)
def _parsed(table: bytes) -> dict[int, tuple[Segment, ...]]:
    """Segments by step; parsed once a batch, although each layer asks."""
    rows = np.frombuffer(table, dtype=np.int64).reshape(-1, len(Segment._fields))
    segments = map(Segment._make, rows.tolist())
    return {step: tuple(group) for step, group in groupby(segments, key=lambda s: s.step)}


def predict_work(layout: Layout, rows: Sequence[Ints]) -> Ints:
    """(query, key) pairs of each rank at each step (cp, cp)."""
    work = np.zeros((layout.cp, layout.cp), dtype=np.int64)
    chunks = np.arange(len(layout.owner))
    edges = np.append(chunks, len(chunks)) * layout.chunk
    step = (layout.owner[None, :] - np.arange(layout.cp)[:, None]) % layout.cp  # (cp, chunks)
    rank = np.broadcast_to(layout.owner, step.shape)
    alike = Counter(bounds.tobytes() for bounds in rows)
    for documents, count in alike.items():
        bounds = np.frombuffer(documents, dtype=np.int64)
        queries, k0, k1 = _reach(layout, bounds, chunks)
        before = queries * np.maximum(k1 - k0, 0)  # (cp, chunks)
        inside = np.diff(pairs_before(bounds, edges)) - before.sum(axis=0)  # (chunks,)
        np.add.at(work, (rank, step), count * before)
        np.add.at(work[:, 0], layout.owner, count * inside)
    return work


def imbalance(work: Ints) -> float:
    """Work of the busiest rank over the mean, from `predict_work`."""
    per_rank = work.sum(axis=1)
    return float(per_rank.max() / per_rank.mean())


def lock_step_cost(work: Ints, transport: str, hop: float = 0.0) -> float:
    """Time of one pass [pairs], from `predict_work`; hop: time of one hop of keys and values.

    A ring waits at each step for its busiest rank, or for the hop under way. All-gather waits once,
    for the keys of all others, which come during the first step; then only for the rank that is
    busiest in total.
    """
    cp = len(work)
    if transport == "allgather":
        open_hops = max((cp - 1) * hop - float(work[:, 0].min()), 0.0)
        return float(work.sum(axis=1).max()) + open_hops
    busiest = work.max(axis=0).astype(np.float64)
    return float(np.maximum(busiest[:-1], hop).sum() + busiest[-1])


def choose_transport(work: Ints, hop: float = 0.0, margin: float = 1.1) -> str:
    """The cheaper transport; the ring unless all-gather, which holds cp times the keys, is faster
    by `margin`."""
    ring = lock_step_cost(work, "ring", hop)
    return "ring" if ring <= margin * lock_step_cost(work, "allgather", hop) else "allgather"
