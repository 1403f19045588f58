"""A batch cut for one rank of a ring: what happens between reading rows and calling the model."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ringshard.parallel.ring.agreement import agree
from ringshard.parallel.ring.attention import RingState
from ringshard.parallel.ring.documents import Ints, padded
from ringshard.parallel.ring.group import Ring
from ringshard.parallel.ring.layout import CHUNKS_PER_RANK, LAYOUTS, Layout, pad_to, padded_length
from ringshard.parallel.ring.plan import build_plan, choose_transport, imbalance, predict_work


@dataclass(frozen=True)
class Cutting:
    """How sequences are cut and keys travel."""

    layout: str = "zigzag"
    """zigzag, contiguous or balanced."""
    transport: str = "auto"
    """ring, allgather, or auto: by the predicted time of each batch."""
    kernel: str = "auto"
    """A name of `kernels`."""
    hop: float = 0.0
    """Time of one hop of keys and values as work [pairs], see `hop_in_pairs`."""
    check: bool = False
    """Whether ranks compare what they read, each batch; costs one message to each peer."""


@dataclass(frozen=True)
class Cut:
    """How the rows of a batch are cut, the same on all ranks of a ring."""

    rows: list[Ints]
    """Bounds of the documents, padding behind them included."""
    layout: Layout
    work: Ints
    """(query, key) pairs of each rank at each step (cp, cp)."""
    transport: str
    """ring or allgather."""

    @classmethod
    def of(cls, rows: Sequence[Ints], cp: int, cutting: Cutting) -> "Cut":
        """The cut over `cp` ranks of rows with these bounds."""
        chunks = CHUNKS_PER_RANK[cutting.layout]
        length = padded_length(max(int(bounds[-1]) for bounds in rows), cp, chunks)
        rows = [padded(bounds, length) for bounds in rows]
        layout = LAYOUTS[cutting.layout](rows, cp)
        work, way = predict_work(layout, rows), cutting.transport
        way = choose_transport(work, cutting.hop * len(rows)) if way == "auto" else way
        return cls(rows, layout, work, way)


@dataclass(frozen=True)
class Share:
    """One rank's part of a batch."""

    tensors: dict[str, Tensor]
    """Each (…, S / cp)."""
    state: RingState
    """For the model, as ring=."""
    layout: Layout
    """To put results back together."""
    imbalance: float
    """Predicted work of the busiest rank over the mean."""


def share(
    ring: Ring,
    rows: Sequence[Ints],
    tensors: Mapping[str, tuple[Tensor, int]],
    cutting: Cutting,
) -> Share:
    """This rank's part of a batch; all ranks of the ring give the same, on the host.

    rows: bounds of the documents of each row; tensors: (B, S) each, or (3, B, S) for positions in
    three dimensions, with the value that padding has. Raises RingError if `check` finds that the
    ranks read different rows.
    """
    if cutting.check and ring.size > 1:
        _compare(ring, rows, tensors)
    cut = Cut.of(rows, ring.size, cutting)
    layout = cut.layout
    plan = build_plan(layout, cut.rows, ring.rank).to_tensor()
    own = {
        name: layout.shard(pad_to(tensor, layout.length, value, dim=-1), ring.rank, dim=-1)
        for name, (tensor, value) in tensors.items()
    }
    state = RingState(plan, ring.name, cut.transport, cutting.kernel)
    return Share(own, state, layout, imbalance(cut.work))


def hop_in_pairs(
    local_length: int, heads: int, kv_heads: int, itemsize: int, flops_per_byte: float
) -> float:
    """Pairs of one row that a rank computes while keys and values of `local_length` tokens travel.

    flops_per_byte: F / B, kernel FLOP/s over link byte/s. A pair costs 4·Hq·D FLOPs forward, a hop
    is 2·S·Hkv·D elements. It hides behind the S²/2 pairs of a zigzag step if
    S ≥ itemsize · (Hkv / Hq) · F / B.
    """
    return local_length * kv_heads / heads * itemsize / 2 * flops_per_byte


def _compare(ring: Ring, rows: Sequence[Ints], tensors: Mapping[str, tuple[Tensor, int]]) -> None:
    documents = hashlib.sha256(b"".join(bounds.tobytes() for bounds in rows))
    content = hashlib.sha256(
        b"".join(t.contiguous().numpy().tobytes() for t, _ in tensors.values())
    )
    agree(
        ring,
        rows=len(rows),
        length=max(int(bounds[-1]) for bounds in rows),
        documents_hash=_number(documents.digest()),
        tokens_hash=_number(content.digest()),
    )


def _number(digest: bytes) -> int:
    return int(np.frombuffer(digest[:8], dtype=np.int64)[0])
