"""The output projection and its cross-entropy, without the logits of the whole batch."""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

IGNORED = -100
"""Target of a token that is not learned."""


def chunked_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, chunk: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sum of the cross-entropies of `hidden @ weight.T + bias` [nats], each token's own, and, where
    no gradient is asked for, whether each target is the likeliest token.

    hidden (N, D), weight (V, D), bias (V,) or None, targets (N,) int64 with -100 for a token that
    is not learned; chunk: tokens whose logits exist at one time. The sum is differentiable, the
    token losses (N,) carry no gradient; both are fp32 (fp64 for fp64 input), as is the softmax.
    The last is (N,) bool, False for tokens that are not learned.

    The gradients are made in the forward pass, while a chunk's logits are at hand: no more than
    chunk × V numbers exist and nothing is computed twice. So the backward pass works once.
    """
    needs_gradient = torch.is_grad_enabled()
    return cast(
        tuple[Tensor, Tensor, Tensor | None],
        _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden, weight, bias, targets, chunk, needs_gradient
        ),
    )


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        chunk: int,
        needs_gradient: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        needed = [needs_gradient and needs for needs in ctx.needs_input_grad[:3]]
        losses, hits, ctx.gradients = _losses_and_gradients(
            hidden, weight, bias, targets, chunk, needed
        )
        ctx.mark_non_differentiable(losses)
        ctx.dtype = hidden.dtype
        return losses.sum(), losses, hits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        """Scales in place: a copy of the weight's gradient would be the largest tensor of all."""
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError("chunked_cross_entropy keeps nothing for a second backward pass")
        scaled = [None if g is None else g.mul_(scale).to(ctx.dtype) for g in gradients]
        return *scaled, None, None, None


def _losses_and_gradients(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    chunk: int,
    needed: list[bool],
) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
    """Token losses (N,), hits (N,) where no gradient is needed, and the gradients of hidden, weight
    and bias that are."""
    long = torch.promote_types(hidden.dtype, torch.float32)  # softmax, and sums over chunks
    logits = hidden.new_empty(min(chunk, len(hidden)), len(weight))  # (C, V), for all chunks
    softmax = logits.to(long)  # the same memory, if the format is the same
    losses = hidden.new_empty(len(hidden), dtype=long)
    hits = None if any(needed) else torch.empty_like(targets, dtype=torch.bool)
    d_hidden = torch.empty_like(hidden) if needed[0] else None
    d_weight = torch.zeros_like(weight, dtype=long) if needed[1] else None
    d_bias = hidden.new_zeros(len(weight), dtype=long) if needed[2] else None
    for start in range(0, len(hidden), chunk):
        part = slice(start, start + chunk)
        ignored = (targets[part] == IGNORED)[:, None]
        h = hidden[part].masked_fill(ignored, 0)
        target = targets[part, None].masked_fill(ignored, 0)
        z, p = logits[: len(h)], softmax[: len(h)]
        _project(h, weight, bias, out=z)
        torch.log_softmax(z, dim=1, dtype=long, out=p)
        log_likelihood = p.gather(1, target).masked_fill_(ignored, 0)
        losses[part] = -log_likelihood[:, 0]
        if hits is not None:
            hits[part] = ((log_likelihood == p.amax(1, keepdim=True)) & ~ignored)[:, 0]
            continue
        # d loss / d logits = softmax - one-hot(target). Ignored tokens need no zero row: h is 0.
        p.exp_().scatter_(1, target, log_likelihood.exp() - 1)
        z = z.copy_(p) if z.dtype != p.dtype else z
        if d_hidden is not None:
            torch.mm(z, weight, out=d_hidden[part]).masked_fill_(ignored, 0)
        if d_weight is not None:
            _add_product(d_weight, z.T, h)
        if d_bias is not None:
            d_bias += p.masked_fill_(ignored, 0).sum(0)
    return losses, hits, [d_hidden, d_weight, d_bias]


def _project(hidden: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    if bias is None:
        torch.mm(hidden, weight.T, out=out)
    else:
        torch.addmm(bias, hidden, weight.T, out=out)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right; without a temporary where the formats agree."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
