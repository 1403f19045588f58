"""Exact attention over a sequence that is cut over ranks, as one operator with a backward pass.

An operator, not a function of autograd: compiled blocks hold it as one node, and selective
activation checkpointing keeps (out, lse), so that the ring is never gone round twice forward.

Forward: keys and values pass by; outputs of blocks are merged in fp32. Backward
(arXiv:2310.01889): with the merged out and lse each block gives its exact share of dQ, dK and dV;
keys and values go round again, and the sums of dK and dV go with them.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from ringshard.parallel.ring.agreement import agree_on_shape
from ringshard.parallel.ring.blocks import Block, blocks_of
from ringshard.parallel.ring.group import Ring, ring_named
from ringshard.parallel.ring.kernels import Kernel, choose_kernel
from ringshard.parallel.ring.plan import Plan
from ringshard.parallel.ring.transport import TRANSPORTS, Transport, by_head


@dataclass(frozen=True, eq=False)
class RingState:
    """What attention must know of a batch; given to the model as the keyword `ring`.

    An object and not a tensor, for FSDP would copy a tensor to the GPU and a plan is read on the
    host. A keyword and not a global, for recomputation happens when a global is gone.
    """

    plan: Tensor
    """int64 CPU (segments, 8), see `plan`."""
    ring: str
    """Name of an open ring."""
    transport: str
    """ring or allgather."""
    kernel: str = "auto"
    """A name of `kernels`."""


def ring_attention(q: Tensor, k: Tensor, v: Tensor, state: RingState, scale: float) -> Tensor:
    """softmax(scale · Q Kᵀ) V, causal and within documents, over the sequences of all ranks.

    q (B, Hq, S, D), k (B, Hkv, S, D), v (B, Hkv, S, Dv), S the rank's own tokens, Hq a multiple of
    Hkv; returns (B, Hq, S, Dv). Kernels want one head size: the smaller is padded with zeros,
    which change neither a dot product nor, cut off again, the output.
    """
    q, k = q.to(v.dtype), k.to(v.dtype)  # autocast leaves fp32 where rotary embeddings were
    width, wanted = v.shape[-1], max(q.shape[-1], v.shape[-1])
    if q.is_cuda:
        wanted = -(-wanted // 8) * 8
    q, k, v = (
        F.pad(t, (0, wanted - t.shape[-1])) if t.shape[-1] < wanted else t for t in (q, k, v)
    )
    out, _ = cast(
        tuple[Tensor, Tensor],
        ring_forward(q, k, v, state.plan, scale, state.ring, state.transport, state.kernel),
    )
    return out[..., :width] if width < wanted else out


@torch.library.custom_op("ringshard::ring_forward", mutates_args=())
def ring_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: Tensor,
    scale: float,
    ring: str,
    transport: str,
    kernel: str,
) -> tuple[Tensor, Tensor]:
    """The operator: (out (B, Hq, S, D) of q's dtype, lse (B, Hq, S) fp32)."""
    pass_ = _Pass.of(q, plan, scale, ring, transport, kernel)
    pass_.ring.calls += 1
    agree_on_shape(pass_.ring, k, transport)
    if pass_.is_one_call:
        out, lse = map(_stored_by_token, pass_.kernel.forward(q, k, v, True, scale))
        return out, lse
    out, lse = _by_token(q, pass_.sums), _by_token(q[..., 0], _wide(q.dtype))
    for step, (keys, values) in enumerate(pass_.transport.keys_values(k, v)):
        for block in pass_.blocks(step):
            block.forward(q, keys, values, out, lse)
    return out.to(q.dtype), lse


@torch.library.custom_op("ringshard::ring_backward", mutates_args=())
def ring_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    plan: Tensor,
    scale: float,
    ring: str,
    transport: str,
    kernel: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The operator's backward pass: dq (B, Hq, S, D), dk and dv (B, Hkv, S, D)."""
    pass_ = _Pass.of(q, plan, scale, ring, transport, kernel)
    if pass_.is_one_call:
        found = pass_.kernel.backward(dout, q, k, v, out, lse, True, scale)
        dq, dk, dv = map(_stored_by_token, found)
        return dq, dk, dv
    dq = _by_token(q, pass_.sums)
    gradients = pass_.transport.gradients()
    for step, (keys, values) in enumerate(pass_.transport.keys_values(k, v)):
        share = _share(k, pass_.sums, is_written=step == 0)
        for block in pass_.blocks(step):
            block.backward(dout, q, keys, values, out, lse, (dq, *by_head(share)))
        gradients.add(step, share)
    dk, dv = (t.to(q.dtype, copy=True) for t in by_head(gradients.home()))  # not of one buffer
    return dq.to(q.dtype), dk, dv


@dataclass(frozen=True)
class _Pass:
    """The arguments of an operator as objects."""

    plan: Plan
    scale: float
    ring: Ring
    transport: Transport
    kernel: Kernel
    length: int
    device: torch.device
    sums: torch.dtype
    """Of sums over steps; one rank has one step, in which each row is written once."""

    @staticmethod
    def of(
        q: Tensor, plan: Tensor, scale: float, ring: str, transport: str, kernel: str
    ) -> "_Pass":
        found, planned = ring_named(ring), Plan.from_tensor(plan)
        planned.check(q.shape[0], q.shape[2])
        return _Pass(
            planned,
            scale,
            found,
            TRANSPORTS[transport](found),
            choose_kernel(kernel, q.device, q.dtype),
            q.shape[2],
            q.device,
            q.dtype if found.size == 1 else _wide(q.dtype),
        )

    @property
    def is_one_call(self) -> bool:
        """Whether each row is one document, whole on this rank: results need no place in larger
        ones."""
        return self.ring.size == 1 and len(self.plan.at(0)) == 1

    def blocks(self, step: int) -> list[Block]:
        return blocks_of(self.kernel, self.plan.at(step), self.scale, self.length, self.device)


def _share(k: Tensor, dtype: torch.dtype, is_written: bool) -> Tensor:
    """A buffer for dk and dv (2, B, S, Hkv, D); zeros, unless all of it is written at once."""
    rows, heads, length, width = k.shape
    make = k.new_empty if is_written else k.new_zeros
    return make((2, rows, length, heads, width), dtype=dtype)


def _stored_by_token(t: Tensor) -> Tensor:
    """(B, H, S, …), stored as (B, S, H, …); no copy where it is already."""
    return t.transpose(1, 2).contiguous().transpose(1, 2)


def _by_token(like: Tensor, dtype: torch.dtype) -> Tensor:
    """An empty (B, H, S, …), stored as (B, S, H, …)."""
    rows, heads, length, *rest = like.shape
    return like.new_empty((rows, length, heads, *rest), dtype=dtype).transpose(1, 2)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


@ring_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _by_token(q, q.dtype), _by_token(q[..., 0], _wide(q.dtype))


@ring_backward.register_fake
def _(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _by_token(q, q.dtype), _by_token(k, k.dtype), _by_token(v, v.dtype)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Own keys and values are kept, never those of others."""
    q, k, v, plan, *ctx.settings = inputs
    ctx.save_for_backward(q, k, v, *output, plan)


def _differentiate(ctx: Any, dout: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    """lse is not given out, so nothing differentiates it."""
    return *ring_backward(dout, *ctx.saved_tensors, *ctx.settings), *(None,) * 5


ring_forward.register_autograd(_differentiate, setup_context=_keep)
