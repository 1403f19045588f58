"""Kernel calls of one ring step: which queries and keys they take, and where their results go.

Tensors are (B, H, S, D), S the tokens of a rank. Those that are written to are stored token by
token, (B, S, H, D), as projections and transformers have them.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ringshard.parallel.ring.kernels import Kernel
from ringshard.parallel.ring.merge import merge_
from ringshard.parallel.ring.plan import Segment
from ringshard.parallel.ring.spans import Index, Spans, lay_out

Gradients = tuple[Tensor, Tensor, Tensor]


class Block(Protocol):
    """One kernel call."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor) -> None:
        """Attends, and writes (step 0) or merges the result into out (B, Hq, S, D), lse (B, Hq,
        S)."""

    def backward(
        self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, to: Gradients
    ) -> None:
        """Writes (step 0) or adds the gradients to `to`: dq, dk, dv."""


def blocks_of(
    kernel: Kernel, segments: tuple[Segment, ...], scale: float, length: int, device: torch.device
) -> list[Block]:
    """The kernel calls for segments of one step, in rows of `length` tokens: one for all where the
    kernel can."""
    if kernel.packed_forward is None or len(segments) < 2:
        return [DenseBlock(kernel, segment, scale) for segment in segments]
    spans = lay_out(segments, length, device)
    return [PackedBlock(kernel, spans, bool(segments[0].causal), segments[0].step == 0, scale)]


@dataclass(frozen=True)
class DenseBlock:
    """One segment: slices, which are views."""

    kernel: Kernel
    segment: Segment
    scale: float

    def forward(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor) -> None:
        """See Block."""
        causal = bool(self.segment.causal)
        found = self.kernel.forward(
            self._queries(q), self._keys(k), self._keys(v), causal, self.scale
        )
        if self.segment.step:
            merge_(self._queries(out), self._queries(lse), *found)
        else:
            self._queries(out).copy_(found[0])
            self._queries(lse).copy_(found[1])

    def backward(
        self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, to: Gradients
    ) -> None:
        """See Block."""
        dq, dk, dv = self.kernel.backward(
            self._queries(dout),
            self._queries(q),
            self._keys(k),
            self._keys(v),
            self._queries(out),
            self._queries(lse),
            bool(self.segment.causal),
            self.scale,
        )
        put = Tensor.add_ if self.segment.step else Tensor.copy_
        put(self._queries(to[0]), dq)
        put(self._keys(to[1]), dk)
        put(self._keys(to[2]), dv)

    def _queries(self, t: Tensor) -> Tensor:
        s = self.segment
        return t[s.row0 : s.row1, :, s.q0 : s.q1]

    def _keys(self, t: Tensor) -> Tensor:
        s = self.segment
        return t[s.row0 : s.row1, :, s.k0 : s.k1]


@dataclass(frozen=True)
class PackedBlock:
    """Many segments laid end to end: views where they lie so, else copies, taken from and added
    back to their places."""

    kernel: Kernel
    spans: Spans
    causal: bool
    is_first: bool
    scale: float

    def forward(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor) -> None:
        """See Block."""
        assert self.kernel.packed_forward is not None
        found_out, found_lse = self.kernel.packed_forward(
            self._queries(q), self._keys(k), self._keys(v), self.spans, self.causal, self.scale
        )
        found_lse = found_lse.mT  # (T, Hq)
        if not self.is_first:
            merged_out, merged_lse = self._queries(out), self._queries(lse)
            merge_(merged_out, merged_lse, found_out, found_lse)
            if isinstance(self.spans.queries, slice):
                return
            found_out, found_lse = merged_out, merged_lse
        _write(out, self.spans.queries, found_out)
        _write(lse, self.spans.queries, found_lse)

    def backward(
        self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, to: Gradients
    ) -> None:
        """See Block."""
        assert self.kernel.packed_backward is not None
        dq, dk, dv = self.kernel.packed_backward(
            self._queries(dout),
            self._queries(q),
            self._keys(k),
            self._keys(v),
            self._queries(out),
            self._queries(lse).mT,
            self.spans,
            self.causal,
            self.scale,
        )
        put = _write if self.is_first else _add
        put(to[0], self.spans.queries, dq)
        put(to[1], self.spans.keys, dk)
        put(to[2], self.spans.keys, dv)

    def _queries(self, t: Tensor) -> Tensor:
        return _by_token(t)[self.spans.queries]  # (T, H, …)

    def _keys(self, t: Tensor) -> Tensor:
        return _by_token(t)[self.spans.keys]  # (U, H, D)


def _by_token(t: Tensor) -> Tensor:
    """(B, H, S, …) as (B·S, H, …); a view if it is stored token by token."""
    return t.transpose(1, 2).flatten(0, 1)


def _storage(t: Tensor) -> Tensor:
    """The same, always a view."""
    return t.transpose(1, 2).view(-1, t.shape[1], *t.shape[3:])


def _write(to: Tensor, index: Index, values: Tensor) -> None:
    _storage(to)[index] = values.to(to.dtype)


def _add(to: Tensor, index: Index, values: Tensor) -> None:
    """A key may be wanted twice in a step; unlike `index_add_` this sums in one order on CUDA."""
    if isinstance(index, slice):
        _storage(to)[index].add_(values)
    else:
        _storage(to).index_put_((index,), values.to(to.dtype), accumulate=True)
