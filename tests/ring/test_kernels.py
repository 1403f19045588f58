"""Kernels against attention written out; merging against one softmax."""

import sys
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks
from ring.packs import row
from torch import Tensor

from ringshard.parallel.ring import cuda_kernels
from ringshard.parallel.ring.blocks import blocks_of
from ringshard.parallel.ring.kernels import KERNELS, Kernel, choose_kernel, cpu_flash_forward
from ringshard.parallel.ring.layout import zigzag
from ringshard.parallel.ring.merge import merge_
from ringshard.parallel.ring.plan import Segment, build_plan
from ringshard.parallel.ring.spans import lay_out

SHAPES = list(product([(4, 4), (8, 2), (4, 1)], [16, 64, 80, 128]))
"""((query heads, key heads), head size)."""


def block(heads: tuple[int, int], width: int, queries: int = 9, keys: int = 9) -> list[Tensor]:
    """dout, q, k, v, as slices of something larger."""
    g = torch.Generator().manual_seed(0)
    shapes = [(heads[0], queries), (heads[0], queries), (heads[1], keys), (heads[1], keys)]
    return [torch.randn(2, n + 5, h, width, generator=g)[:, 2:-3].transpose(1, 2)
            for h, n in shapes]  # fmt: skip


def passes(kernel: Kernel, tensors: list[Tensor], causal: bool) -> list[Tensor]:
    """out, lse, dq, dk, dv."""
    dout, q, k, v = tensors
    out, lse = kernel.forward(q, k, v, causal, 0.3)
    return [out, lse, *kernel.backward(dout, q, k, v, out, lse, causal, 0.3)]


@pytest.mark.parametrize(("heads", "width"), SHAPES)
def test_cpu_flash_is_attention_written_out(heads: tuple[int, int], width: int) -> None:
    for causal, keys in ((True, 9), (False, 9), (False, 4), (False, 30)):
        tensors = block(heads, width, keys=keys)
        found, wanted = (passes(KERNELS[n], tensors, causal) for n in ("cpu_flash", "math"))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_lse_is_wide_and_natural(dtype: torch.dtype) -> None:
    _, q, k, v = (t.to(dtype) for t in block((4, 2), 16))
    kernel = choose_kernel("auto", q.device, dtype)
    assert kernel is KERNELS["math" if dtype == torch.float64 else "cpu_flash"]
    _, lse = kernel.forward(q, k, v, False, 0.3)
    assert lse.shape == (2, 4, 9)
    assert lse.dtype == torch.promote_types(dtype, torch.float32)
    scores = 0.3 * q.double() @ k.double().repeat_interleave(2, dim=1).mT
    tolerance = 2e-2 if dtype in (torch.bfloat16, torch.float16) else 1e-5
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), atol=tolerance, rtol=0)


def _gradcheck(causal: bool) -> bool:
    q, k, v = (t.double() for t in block((4, 2), 4, queries=5, keys=5)[1:])

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Tensor) -> Tensor:
            out, lse = KERNELS["math"].forward(*tensors, causal, 0.3)
            ctx.save_for_backward(*tensors, out, lse)
            return out

        @staticmethod
        def backward(ctx: Any, d: Tensor) -> tuple[Tensor, ...]:
            return KERNELS["math"].backward(d, *ctx.saved_tensors, causal, 0.3)

    return torch.autograd.gradcheck(Attention.apply, [t.requires_grad_() for t in (q, k, v)])


@pytest.mark.parametrize("causal", [True, False])
def test_gradients_written_out_are_the_finite_differences(causal: bool) -> None:
    assert run_ranks(1, _gradcheck, causal) == [True]


@pytest.mark.parametrize("name", ["cuda_flash", "cuda_cudnn", "cuda_efficient"])
@pytest.mark.parametrize("queries", [9, 64])
def test_arguments_and_shapes_of_cuda_kernels(name: str, queries: int) -> None:
    """On the meta device, which computes nothing: no GPU was at hand."""
    tensors = [t.to("meta", torch.bfloat16) for t in block((8, 2), 64, queries, keys=30)]
    out, lse, dq, dk, dv = passes(KERNELS[name], tensors, causal=False)
    assert lse.shape == (2, 8, queries) and lse.dtype == torch.float32
    assert out.shape == dq.shape == tensors[1].shape
    assert dk.shape == dv.shape == tensors[2].shape


class Recorded:
    """Stands for torch.ops.aten, and keeps what its operators were called with."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.tensors += [a for a in arguments if isinstance(a, Tensor)]
            return getattr(torch.ops.aten, name)(*arguments, **keywords)

        return call


@pytest.mark.parametrize("name", ["cuda_flash", "cuda_cudnn", "cuda_efficient"])
@pytest.mark.parametrize("queries", [9, 64])
def test_gradients_are_wrong_where_lse_is_stored_by_token(
    name: str, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ring stores it so, and CUDA's kernels take neighbours for neighbouring queries."""
    dout, q, k, v = (t.to("meta", torch.bfloat16) for t in block((8, 2), 64, queries, keys=30))
    aten = Recorded()
    monkeypatch.setattr(cuda_kernels, "aten", aten)
    lse = torch.empty(2, queries, 8, device="meta").transpose(1, 2)
    KERNELS[name].backward(dout, q, k, v, q, lse, False, 0.3)
    (given,) = (t for t in aten.tensors if t.dtype == torch.float32 and t.dim() > 2)
    assert given.stride(2) == 1


def test_cudnn_is_given_tensors_of_different_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the ring stores them: token by token what travels, head by head what was merged."""
    dout, q, k, v = (t.to("meta", torch.bfloat16) for t in block((8, 2), 64, 30))
    dout, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (dout, k, v))
    aten = Recorded()
    monkeypatch.setattr(cuda_kernels, "aten", aten)
    kernel = KERNELS["cuda_cudnn"]
    out, lse = kernel.forward(q, k, v, False, 0.3)
    kernel.backward(dout, q, k, v, out, lse, False, 0.3)
    given = [t for t in aten.tensors if t.dim() == 4]
    assert len(given) == 3 + 5 + 1 and all(t.is_contiguous() for t in given)


SEGMENTS = (Segment(1, 0, 1, 0, 5, 2, 9, 0), Segment(1, 1, 2, 3, 4, 0, 12, 0),
            Segment(1, 0, 1, 5, 9, 2, 4, 0))  # fmt: skip


def test_arguments_and_shapes_of_the_cuda_kernel_for_many_segments() -> None:
    spans = lay_out(SEGMENTS, 12, torch.device("meta"))
    assert spans.longest_queries == 5 and spans.longest_keys == 12
    q = torch.empty(10, 8, 64, device="meta", dtype=torch.bfloat16)
    k = torch.empty(21, 2, 64, device="meta", dtype=torch.bfloat16)
    kernel = KERNELS["cuda_flash"]
    assert kernel.packed_forward is not None and kernel.packed_backward is not None
    out, lse = kernel.packed_forward(q, k, k, spans, False, 0.3)
    assert out.shape == q.shape and lse.shape == (8, 10) and lse.dtype == torch.float32
    dq, dk, dv = kernel.packed_backward(out, q, k, k, out, lse, spans, False, 0.3)
    assert dq.shape == q.shape and dk.shape == dv.shape == k.shape


def test_segments_laid_end_to_end() -> None:
    spans, places = lay_out(SEGMENTS, 12, torch.device("cpu")), torch.arange(24)
    assert places[spans.queries].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 15]
    assert places[spans.keys].tolist() == [*range(2, 9), 2, 3, *range(12, 24)]
    assert spans.query_ends.tolist() == [0, 5, 9, 10] and spans.query_ends.dtype == torch.int32
    assert spans.key_ends.tolist() == [0, 7, 9, 21]


@pytest.mark.parametrize("rows", [["edge + 1"] * 2, ["threes", "one"]])
def test_documents_that_lie_in_order_are_copied_for_one_call(rows: list[str]) -> None:
    """At the first step they always do, also where rows share their segments."""
    plan = build_plan(zigzag(64, 1), [row(pattern, 64, 64) for pattern in rows], 0)
    given: list[Tensor] = []

    def forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        given.extend((q, k, v))
        return KERNELS["math_packed"].packed_forward(q, k, v, *rest)

    def backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        given.extend(arguments[:5])
        return KERNELS["math_packed"].packed_backward(*arguments)

    kernel = replace(KERNELS["math_packed"], packed_forward=forward, packed_backward=backward)
    (block,) = blocks_of(kernel, plan.at(0), 0.3, 64, torch.device("cpu"))
    dout, q, k, v, out, *to = (torch.randn(2, 64, 4, 8).transpose(1, 2) for _ in range(8))
    lse = torch.randn(2, 64, 4).transpose(1, 2)
    block.forward(q, k, v, out, lse)
    block.backward(dout, q, k, v, out, lse, to)
    assert [t.data_ptr() for t in given] == [t.data_ptr() for t in (q, k, v, dout, q, k, v, out)]


@pytest.mark.parametrize("sizes", [[7], [1, 6], [3, 1, 2, 1]])
@pytest.mark.parametrize("factor", [1.0, 1e3])
def test_merged_blocks_are_one_softmax(sizes: list[int], factor: float) -> None:
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 3, 5, 7, generator=g, dtype=torch.float64) * factor
    values = torch.randn(2, 3, 7, 4, generator=g, dtype=torch.float64)
    out, lse = torch.zeros(2, 3, 5, 4), torch.full((2, 3, 5), float("-inf"))
    for s, v in zip(scores.split(sizes, dim=-1), values.split(sizes, dim=-2), strict=True):
        merge_(out, lse, (s.softmax(-1) @ v).float(), s.logsumexp(-1).float())
    torch.testing.assert_close(out.double(), scores.softmax(-1) @ values, atol=2e-4, rtol=0)
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("difference", [1e4, -1e4])
def test_a_block_that_weighs_nothing_changes_nothing(difference: float) -> None:
    one, other = torch.randn(5, 4), torch.randn(5, 4)
    out, lse = one.clone(), torch.zeros(5)
    merge_(out, lse, other, torch.full((5,), difference))
    assert torch.equal(out, other if difference > 0 else one)
    assert torch.equal(lse, torch.full((5,), max(difference, 0.0)))


def test_the_first_block_is_taken_as_it_is() -> None:
    block_out, block_lse = torch.randn(5, 4), torch.randn(5)
    out, lse = torch.zeros(5, 4), torch.full((5,), float("-inf"))
    merge_(out, lse, block_out, block_lse)
    assert torch.equal(out, block_out) and torch.equal(lse, block_lse)


def test_the_check_of_kernels_finds_wrong_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script that goes to a machine with a GPU: right kernels pass, a wrong one stands out."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2] / "jobs")])
    measured = import_module("benchmarks.ring_kernels").measured
    names, bounds = ("out", "lse", "dq", "dk", "dv"), {"float32": 1e-5, "bfloat16": 2e-2}
    rows = measured("cpu", 64)
    assert {row["kernel"] for row in rows} == {"cpu_flash", "math_packed"} and len(rows) == 16
    assert all(0 < row[name] < bounds[row["format"]] for row in rows for name in names)
    late = replace(KERNELS["cpu_flash"], forward=lambda *a: cpu_flash_forward(*a[:3], False, a[4]))
    monkeypatch.setitem(KERNELS, "cpu_flash", late)
    wrong = [r["block"].split(",")[0] for r in measured("cpu", 64) if r["out"] > bounds["bfloat16"]]
    assert wrong == ["causal"] * 4
