"""Attention of packed rows, on one process and cut over forked ranks."""

import functools
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch._dynamo  # which an operator imports at its first call: in each forked rank anew
import torch.nn.functional as F
from ranks import run_ranks
from ring.packs import row
from torch import Tensor

from ringshard.parallel.ring.attention import RingState, ring_attention
from ringshard.parallel.ring.documents import Ints, document_of
from ringshard.parallel.ring.group import Ring, alone, open_ring
from ringshard.parallel.ring.layout import CHUNKS_PER_RANK, LAYOUTS, Layout, pad_to, padded_length
from ringshard.parallel.ring.plan import build_plan


@dataclass(frozen=True)
class Case:
    """One computation, the same for any number of ranks; the tensors follow from it."""

    documents: tuple[str, ...] = ("one",)
    """Pattern of each row."""
    true_length: int = 64
    heads: tuple[int, int] = (4, 2)
    """Of queries, of keys."""
    widths: tuple[int, int] = (16, 16)
    """Of a head of keys, of values."""
    dtype: torch.dtype = torch.float32
    layout: str = "zigzag"
    transport: str = "ring"
    kernel: str = "auto"
    size: float = 1.0
    """Factor of the queries, hence of the scores."""
    seed: int = 0

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v and the gradient of the output, (B, H, S, D) of the true length; not contiguous,
        as those of a model."""
        g = torch.Generator().manual_seed(self.seed)
        rows, length = len(self.documents), self.true_length
        (hq, hkv), (dk, dv) = self.heads, self.widths
        shapes = [(hq, dk), (hkv, dk), (hkv, dv), (hq, dv)]
        q, *rest = (torch.randn(rows, length, *shape, generator=g) for shape in shapes)
        return tuple(t.to(self.dtype).transpose(1, 2) for t in (q * self.size, *rest))

    @property
    def scale(self) -> float:
        """As models have it."""
        return self.widths[0] ** -0.5

    def cut(self, cp: int) -> tuple[Layout, list[Ints]]:
        """The layout over cp ranks, and the padded bounds."""
        length = padded_length(self.true_length, cp, CHUNKS_PER_RANK[self.layout])
        rows = [row(pattern, self.true_length, length) for pattern in self.documents]
        return LAYOUTS[self.layout](rows, cp), rows


Results = dict[str, Tensor]
"""out, dq, dk, dv: (B, H, S, D)."""


def on_ranks(cp: int, *cases: Case) -> list[Results]:
    """Results of each case, put back together from cp ranks."""
    parts = run_ranks(cp, _parts, cases)
    return [_together(case, [rank[i] for rank in parts]) for i, case in enumerate(cases)]


def _together(case: Case, parts: list[Results]) -> Results:
    layout, _ = case.cut(len(parts))
    return {
        name: layout.unshard([part[name] for part in parts], dim=2)[:, :, : case.true_length]
        for name in parts[0]
    }


def _parts(cases: tuple[Case, ...]) -> list[Results]:
    ring = the_ring()
    return [attend(case, ring) for case in cases]


def the_ring(timeout_s: float = 60) -> Ring:
    """The ring of all ranks."""
    world = torch.distributed.get_world_size()
    return open_ring([range(world)], torch.device("cpu"), timedelta(seconds=timeout_s))


def attend(case: Case, ring: Ring) -> Results:
    """This rank's part of the results."""
    layout, rows = case.cut(ring.size)
    q, k, v, dout = (
        layout.shard(pad_to(t, layout.length, 0.0, dim=2), ring.rank, dim=2) for t in case.tensors()
    )
    leaves = [t.requires_grad_() for t in (q, k, v)]
    plan = build_plan(layout, rows, ring.rank).to_tensor()
    state = RingState(plan, ring.name, case.transport, case.kernel)
    out = ring_attention(q, k, v, state, case.scale)
    gradients = torch.autograd.grad(out, leaves, dout)
    return dict(zip(("out", "dq", "dk", "dv"), (out.detach(), *gradients), strict=True))


def on_one(case: Case) -> Results:
    """The same code on one rank, forked: autograd's threads do not survive a later fork."""
    return _together(case, run_ranks(1, attend, case, alone()))


@functools.cache
def masked(case: Case) -> Results:
    """torch's attention with the mask written out, in fp64: what every other way must give."""
    return run_ranks(1, _masked, case)[0]


def _masked(case: Case) -> Results:
    q, k, v, dout = (t.double() for t in case.tensors())
    leaves = [t.requires_grad_() for t in (q, k, v)]
    groups = case.heads[0] // case.heads[1]
    mask = mask_of([row(p, case.true_length, case.true_length) for p in case.documents])
    k, v = (t.repeat_interleave(groups, dim=1) for t in leaves[1:])
    out = F.scaled_dot_product_attention(q, k, v, mask, scale=case.scale)
    gradients = torch.autograd.grad(out, leaves, dout)
    return dict(zip(("out", "dq", "dk", "dv"), (out.detach(), *gradients), strict=True))


def mask_of(rows: list[Ints]) -> Tensor:
    """(B, 1, S, S) bool: what may be attended to."""
    tokens = torch.arange(int(rows[0][-1]))
    document = torch.stack([torch.from_numpy(document_of(b, tokens.numpy())) for b in rows])
    return ((document[:, :, None] == document[:, None]) & (tokens[:, None] >= tokens))[:, None]


def assert_close(found: Results, wanted: Results, atol: float = 2e-5, **options: Any) -> None:
    """Equal up to rounding, named where not."""
    for name, tensor in wanted.items():
        torch.testing.assert_close(
            found[name],
            tensor.to(found[name].dtype),
            atol=atol,
            rtol=1e-5,
            msg=lambda m, n=name: f"{n}: {m}",
            **options,
        )
