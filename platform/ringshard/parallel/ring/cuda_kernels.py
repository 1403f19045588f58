"""torch's attention kernels for CUDA, with their log-sum-exp brought to one form.

Never run on a GPU so far: tests run them on the meta device, which checks arguments and shapes and
nothing else. What each needs is from torch's sources (2.13, aten/native/transformers/cuda).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ringshard.parallel.ring.spans import Spans

aten = torch.ops.aten

_LSE_MULTIPLE = 32  # queries of efficient attention's lse come in multiples of it


def flash_forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """FlashAttention, bf16 or fp16: q (B, Hq, Sq, D), D a multiple of 8 up to 256."""
    found = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)
    return found[0], found[1]  # (B, Hq, Sq, D), (B, Hq, Sq)


def flash_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Without dropout its random state is never read."""
    lengths = (q.shape[2], k.shape[2])
    gradients: tuple[Tensor, Tensor, Tensor] = aten._scaled_dot_product_flash_attention_backward(
        dout, q, k, v, out, lse.contiguous(), None, None, *lengths, 0.0, causal, *_random(q),
        scale=scale,
    )  # fmt: skip
    return gradients


def flash_packed_forward(
    q: Tensor, k: Tensor, v: Tensor, spans: Spans, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """q (T, Hq, D), k and v (U, Hkv, D) → out (T, Hq, D), lse (Hq, T)."""
    found = aten._flash_attention_forward(
        q, k, v, *_lengths(spans), 0.0, causal, False, scale=scale
    )
    return found[0], found[1]


def flash_packed_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    spans: Spans,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq (T, Hq, D), dk and dv (U, Hkv, D)."""
    gradients: tuple[Tensor, Tensor, Tensor] = aten._flash_attention_backward(
        dout, q, k, v, out, lse.contiguous(), *_lengths(spans), 0.0, causal, *_random(q),
        scale=scale,
    )  # fmt: skip
    return gradients


def cudnn_forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """cuDNN's attention, bf16 or fp16; its lse is (B, Hq, Sq, 1).

    In which order torch stores that, it judges by the strides of q, k, v and out, in the backward
    pass anew: so all are laid out head by head, where there is but one order.
    """
    out, lse, *_ = aten._scaled_dot_product_cudnn_attention(
        *_by_head(q, k, v), None, True, 0.0, causal, False, scale=scale
    )
    return out, lse.squeeze(-1)


def cudnn_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Without dropout its random state is never read."""
    lengths = (q.shape[2], k.shape[2])
    seed = torch.zeros((), dtype=torch.int64, device=q.device)
    gradients: tuple[Tensor, Tensor, Tensor] = aten._scaled_dot_product_cudnn_attention_backward(
        *_by_head(dout, q, k, v, out), lse.contiguous()[..., None], seed, seed, None, None, None,
        *lengths, 0.0, causal, scale=scale,
    )  # fmt: skip
    return gradients


def efficient_forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Memory-efficient attention, fp32 too; it knows no groups, so key heads are repeated."""
    k, v = _repeated(k, q), _repeated(v, q)
    out, lse, *_ = aten._scaled_dot_product_efficient_attention(
        q, k, v, None, True, 0.0, causal, scale=scale
    )
    return out, lse[..., : q.shape[2]]


def efficient_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """lse is padded with ∞, as its own forward does, and contiguous, which nothing checks;
    gradients of repeated heads are summed."""
    heads, seed = k.shape[1], torch.zeros((), dtype=torch.int64, device=q.device)
    lse = F.pad(lse.contiguous(), (0, -lse.shape[-1] % _LSE_MULTIPLE), value=float("inf"))
    dq, dk, dv, _ = aten._scaled_dot_product_efficient_attention_backward(
        dout, q, _repeated(k, q), _repeated(v, q), None, out, lse, seed, seed, 0.0,
        [True, True, True, False], causal, scale=scale,
    )  # fmt: skip
    return dq, _summed(dk, heads), _summed(dv, heads)


def _by_head(*tensors: Tensor) -> list[Tensor]:
    """(B, H, S, D), stored in this order."""
    return [t.contiguous() for t in tensors]


def _lengths(spans: Spans) -> tuple[Tensor, Tensor, int, int]:
    return spans.query_ends, spans.key_ends, spans.longest_queries, spans.longest_keys


def _random(q: Tensor) -> tuple[Tensor, Tensor]:
    """State of the random numbers, as torch.nn.attention.varlen passes it without dropout."""
    return (
        torch.zeros(2, dtype=torch.uint64, device=q.device),
        torch.empty(0, device=q.device),
    )


def _repeated(t: Tensor, q: Tensor) -> Tensor:
    """(B, Hkv, S, D) → (B, Hq, S, D)."""
    return t.repeat_interleave(q.shape[1] // t.shape[1], dim=1)


def _summed(t: Tensor, heads: int) -> Tensor:
    """(B, Hq, S, D) → (B, Hkv, S, D)."""
    return t.reshape(t.shape[0], heads, t.shape[1] // heads, *t.shape[2:]).sum(2)
