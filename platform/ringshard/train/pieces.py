"""Rows cut into what one forward pass of one rank takes: its tokens, and what attention must know.

Labels are shifted and positions built on whole rows, before anything is cut.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ringshard.config.schema.job import Job
from ringshard.config.schema.parallelism import Attention
from ringshard.model.head import IGNORED
from ringshard.parallel.ring.attention import RingState
from ringshard.parallel.ring.documents import Ints, positions_of
from ringshard.parallel.ring.group import Ring, alone
from ringshard.parallel.ring.plan import imbalance
from ringshard.parallel.ring.share import Cut, Cutting, share
from ringshard.train.batches import Batch

_WHOLE = Cutting(layout="contiguous")
"""One chunk: a document is one call of a kernel, and nothing is padded."""


@dataclass(frozen=True)
class Piece:
    """This rank's part of a micro-batch."""

    input_ids: Tensor
    """(B, S / cp) int64."""
    targets: Tensor
    """(B, S / cp) int64, -100 where a token is not learned."""
    corpus: Tensor
    """(B,) int64: which corpus a row is from."""
    positions: Tensor | None
    """(B, S / cp) int64: each token's place in its document; null: as torch's attention counts."""
    state: RingState | None
    """What ring attention must know of the documents."""
    imbalance: float = 1.0
    """Predicted work of the busiest rank of the ring over the mean."""

    @property
    def context(self) -> dict[str, Any]:
        """What a model takes beside tokens and targets."""
        return {} if self.state is None else {"position_ids": self.positions, "ring": self.state}

    def to(self, device: torch.device) -> "Piece":
        """The same piece on `device`; plans stay on the host."""
        return self._moved(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> "Piece":
        """The same piece in page-locked memory, from which copies to a CUDA device overlap with its
        work."""
        return self._moved(Tensor.pin_memory)

    def _moved(self, move: Any) -> "Piece":
        names = ("input_ids", "targets", "corpus", "positions")
        tensors = {name: getattr(self, name) for name in names}
        return replace(self, **{n: move(t) for n, t in tensors.items() if t is not None})


@dataclass(frozen=True)
class Cutter:
    """Cuts batches over the ranks of a ring, each of which reads the same rows."""

    ring: Ring
    cutting: Cutting | None
    """null: attention is torch's, of whole rows."""
    pin: bool = False
    """Whether pieces lie in page-locked memory."""

    @classmethod
    def of(cls, job: Job, ring: Ring, hop: float = 0.0, pin: bool = False) -> "Cutter":
        """As a job says; hop: see `Cutting`."""
        parallelism = job.parallelism
        if parallelism.attention is not Attention.ring:
            return cls(ring, None, pin)
        cutting = Cutting(
            layout=parallelism.cp_layout.name,
            transport=parallelism.cp_transport.name,
            hop=hop,
            check=job.debug.compare_rows,
        )
        return cls(ring, cutting if ring.size > 1 else _WHOLE, pin)

    def pieces(self, batch: Batch, micro_batch: int) -> list[Piece]:
        """This rank's part of each micro-batch, in order."""
        return [self.cut(rows) for rows in batch.micro_batches(micro_batch)]

    def described(self, bounds: Sequence[Ints]) -> str:
        """How several ranks would cut rows with these bounds and their keys travel, in words."""
        assert self.cutting is not None
        cut, asked = Cut.of(bounds, self.ring.size, self.cutting), self.cutting.transport
        why = " (auto: the faster one for the first rows)" if asked == "auto" else ""
        return (
            f"{self.cutting.layout} layout, {cut.transport} transport{why}, the busiest process "
            f"has {imbalance(cut.work):.2f} × the mean work"
        )

    def ahead(self, micro_batch: int) -> Callable[[Batch], Sequence[Piece]]:
        """What a reading thread may do of it: all, but where ranks compare rows, for messages of
        two threads would cross."""
        compares = self.cutting is not None and self.cutting.check
        return lambda batch: () if compares else self.pieces(batch, micro_batch)

    def cut(self, rows: Batch) -> Piece:
        """This rank's part of one micro-batch."""
        if self.cutting is None:
            piece = Piece(rows.input_ids, rows.targets, rows.corpus, None, None)
        else:
            piece = self._shared(rows, self.cutting)
        return piece.pin() if self.pin else piece

    def _shared(self, rows: Batch, cutting: Cutting) -> Piece:
        positions = torch.from_numpy(np.stack([positions_of(bounds) for bounds in rows.bounds]))
        tensors = {
            "input_ids": (rows.input_ids, 0),
            "targets": (rows.targets, IGNORED),
            "position_ids": (positions, 0),
        }
        part = share(self.ring, rows.bounds, tensors, cutting)
        own = part.tensors
        return Piece(
            own["input_ids"],
            own["targets"],
            rows.corpus,
            own["position_ids"],
            part.state,
            part.imbalance,
        )

    def alone(self, input_ids: Tensor) -> dict[str, Any]:
        """What a model takes beside `input_ids` (B, S) that every rank runs whole: each row is one
        document."""
        if self.cutting is None:
            return {}
        rows, length = input_ids.shape
        part = share(alone(), [np.array([0, length])] * rows, {}, _WHOLE)
        positions = torch.arange(length, device=input_ids.device).expand(rows, -1)
        return {"position_ids": positions, "ring": part.state}
