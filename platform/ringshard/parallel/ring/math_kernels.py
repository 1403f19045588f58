"""Attention written out, on any device and in any format: what other kernels are compared with.

Softmax in fp32 at least (fp64 for fp64); it holds all (query, key) scores, so for short sequences
only.
"""

import torch
from torch import Tensor

from ringshard.parallel.ring.spans import Spans


def forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """q (B, Hq, Sq, D), k and v (B, Hkv, Sk, D) → out (B, Hq, Sq, D), lse (B, Hq, Sq)."""
    with torch.autocast(q.device.type, enabled=False):
        scores = _scores(q, k, causal, scale)
        lse = scores.logsumexp(-1)
        out = (scores - lse[..., None]).exp() @ _wide(v)[:, :, None]
    return out.flatten(1, 2).to(q.dtype), lse.flatten(1, 2)  # (B, Hq, Sq, D), (B, Hq, Sq)


def backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk, dv of one block, from the output and lse of the whole row of blocks.

    P = exp(S - lse), D = rowsum(dO ∘ O), dS = P ∘ (dO Vᵀ - D): FlashAttention-2
    (arXiv:2307.08691), algorithm 2.
    """
    with torch.autocast(q.device.type, enabled=False):
        probabilities = (_scores(q, k, causal, scale) - _grouped(lse, k)[..., None]).exp()
        delta = (_wide(dout) * _wide(out)).sum(-1)  # (B, Hq, Sq)
        dout = _grouped(_wide(dout), k)  # (B, Hkv, G, Sq, D)
        dv = (probabilities.mT @ dout).sum(2)  # (B, Hkv, Sk, D)
        d_scores = dout @ _wide(v)[:, :, None].mT - _grouped(delta, k)[..., None]
        d_scores = d_scores * probabilities * scale  # (B, Hkv, G, Sq, Sk)
        dq = (d_scores @ _wide(k)[:, :, None]).flatten(1, 2)
        dk = (d_scores.mT @ _grouped(_wide(q), k)).sum(2)
    return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)


def packed_forward(
    q: Tensor, k: Tensor, v: Tensor, spans: Spans, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """q (T, Hq, D), k and v (U, Hkv, D), span by span → out (T, Hq, D), lse (Hq, T)."""
    outs, lses = [], []
    for queries, keys in spans.slices():
        out, lse = forward(_dense(q[queries]), _dense(k[keys]), _dense(v[keys]), causal, scale)
        outs.append(out[0].transpose(0, 1))
        lses.append(lse[0])
    return torch.cat(outs), torch.cat(lses, dim=1)


def packed_backward(
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
    """dq (T, Hq, D), dk and dv (U, Hkv, D), span by span."""
    gradients = []
    for queries, keys in spans.slices():
        own_q, own_out, own_dout = (_dense(t[queries]) for t in (q, out, dout))
        own_k, own_v, own_lse = _dense(k[keys]), _dense(v[keys]), lse[None, :, queries]
        part = backward(own_dout, own_q, own_k, own_v, own_out, own_lse, causal, scale)
        gradients.append([gradient[0].transpose(0, 1) for gradient in part])
    dq, dk, dv = (torch.cat(column) for column in zip(*gradients, strict=True))
    return dq, dk, dv


def _scores(q: Tensor, k: Tensor, causal: bool, scale: float) -> Tensor:
    """(B, Hkv, G, Sq, Sk), G queries sharing a key head."""
    scores = _grouped(_wide(q), k) @ _wide(k)[:, :, None].mT * scale
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return scores


def _grouped(t: Tensor, k: Tensor) -> Tensor:
    """(B, Hq, …) → (B, Hkv, G, …)."""
    shape = (t.shape[0], k.shape[1], t.shape[1] // k.shape[1], *t.shape[2:])
    return t.reshape(shape)


def _wide(t: Tensor) -> Tensor:
    return t.to(torch.promote_types(t.dtype, torch.float32))


def _dense(t: Tensor) -> Tensor:
    """(T, H, D) → (1, H, T, D)."""
    return t.transpose(0, 1)[None]
