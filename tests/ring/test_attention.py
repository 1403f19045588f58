"""Attention over a ring of ranks equals masked attention on one process, forward and backward."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from ranks import run_ranks
from ring.packs import PATTERNS
from ring.whole import Case, Results, assert_close, attend, masked, on_one, on_ranks, the_ring
from torch import Tensor

from ringshard.parallel.ring.attention import RingState, ring_attention
from ringshard.parallel.ring.documents import bounds_of_lengths
from ringshard.parallel.ring.group import alone
from ringshard.parallel.ring.layout import LAYOUTS, zigzag
from ringshard.parallel.ring.plan import build_plan
from ringshard.parallel.ring.transport import TRANSPORTS

WORLDS = [1, 2, 3, 4]
HEADS = [(4, 4), (8, 2), (4, 1)]
WAYS = list(product(LAYOUTS, TRANSPORTS))


def check(world: int, cases: list[Case]) -> None:
    for case, found in zip(cases, on_ranks(world, *cases), strict=True):
        try:
            assert_close(found, masked(replace(case, layout="zigzag", transport="ring")))
        except AssertionError as error:
            raise AssertionError(f"{case}: {error}") from None


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("heads", HEADS)
def test_every_layout_and_transport_for_heads_in_groups(world: int, heads: tuple[int, int]) -> None:
    case = Case(heads=heads)
    check(world, [replace(case, layout=layout, transport=way) for layout, way in WAYS])


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kernel", ["cpu_flash", "math"])
def test_a_kernel_that_is_asked_for_fails_on_cpu(world: int, kernel: str) -> None:
    check(world, [
        Case(documents=documents, kernel=kernel, transport=way)
        for documents in (("one",), ("edge + 1", "threes"))
        for way in TRANSPORTS
    ])  # fmt: skip


@pytest.mark.parametrize("world", WORLDS)
def test_head_sizes_and_rows(world: int) -> None:
    check(world, [
        Case(widths=(width, width), documents=("one",) * rows)
        for width, rows in product([16, 64, 80, 128], [1, 3])
    ])  # fmt: skip


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_document_pattern(world: int, layout: str) -> None:
    case = Case(true_length=64, layout=layout)
    mixed = tuple(PATTERNS)[:4]  # rows that differ
    check(world, [
        replace(case, documents=documents, transport=transport)
        for documents in [*((pattern,) for pattern in PATTERNS), mixed]
        for transport in TRANSPORTS
    ])  # fmt: skip


@pytest.mark.parametrize("world", WORLDS)
def test_every_true_length(world: int) -> None:
    lengths = sorted({1, 2, 2 * world - 1, 2 * world, 2 * world + 1, 31, 97})
    check(world, [
        Case(true_length=length, documents=(pattern,), layout=layout)
        for length in lengths
        for pattern in ("one", "threes")
        for layout in LAYOUTS
    ])  # fmt: skip


@pytest.mark.parametrize("world", [1, 2, 4])
def test_values_of_another_width_than_keys(world: int) -> None:
    check(world, [Case(widths=(24, 16)), Case(widths=(16, 24), documents=("threes",))])


@pytest.mark.parametrize("world", [1, 3])
def test_segments_in_one_call_are_segments_one_by_one(world: int) -> None:
    """The way of the CUDA kernel for many segments, with attention written out as the kernel."""
    check(world, [
        Case(documents=documents, kernel="math_packed", layout=layout)
        for pattern in ("singles", "edge + 1", "long and short")
        for documents in ((pattern, "one", pattern), (pattern, pattern))
        for layout in LAYOUTS
    ])  # fmt: skip


@pytest.mark.parametrize("world", WORLDS)
def test_transports_give_other_bits(world: int) -> None:
    """But for the gradients of keys, which more than two ranks sum in another order."""
    case = Case(documents=("edge + 1",), layout="balanced", true_length=128)
    cases = [replace(case, transport=way) for way in TRANSPORTS for _ in range(2)]
    ring, again, gathered, _ = found = on_ranks(world, *cases)
    same = list(ring) if world < 3 else ["out", "dq"]
    assert all(torch.equal(ring[name], gathered[name]) for name in same)
    for first, second in ((ring, again), found[2:]):
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_ring_in_fp64_is_exact() -> None:
    case = Case(documents=("edge - 1", "one"), true_length=61, dtype=torch.float64)
    one, (ring,) = on_one(case), on_ranks(2, case)
    for name in one:
        torch.testing.assert_close(ring[name], one[name], atol=1e-13, rtol=1e-12)
        torch.testing.assert_close(one[name], masked(case)[name], atol=1e-13, rtol=1e-12)


def _gradcheck() -> bool:
    case = Case(documents=("edge + 1",), true_length=8, widths=(4, 6), dtype=torch.float64)
    layout, rows = case.cut(1)
    state = RingState(build_plan(layout, rows, 0).to_tensor(), alone().name, "ring")
    leaves = [t.requires_grad_() for t in case.tensors()[:3]]
    return torch.autograd.gradcheck(lambda *t: ring_attention(*t, state, 0.3), leaves)


def test_gradients_are_the_finite_differences() -> None:
    assert run_ranks(1, _gradcheck) == [True]


def relative(found: Results, wanted: Results) -> dict[str, float]:
    """Frobenius norm of the difference over that of what is wanted."""
    return {
        name: float((found[name].double() - exact).norm() / exact.norm())
        for name, exact in wanted.items()
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_as_exact_as_on_one_process(dtype: torch.dtype) -> None:
    case = Case(documents=("two equal", "one"), true_length=128, heads=(4, 1), dtype=dtype)
    ring, one = on_ranks(4, case)[0], on_one(case)
    errors, least = relative(ring, masked(case)), relative(one, masked(case))
    for name, error in errors.items():
        assert ring[name].dtype == dtype
        assert error < 1e-2 and error < 1.5 * least[name], (name, error, least[name])


def test_the_error_does_not_grow_with_the_number_of_ranks() -> None:
    """Blocks come in bf16, their sums are fp32: 8 ranks are no worse than 2."""
    case = Case(true_length=256, dtype=torch.bfloat16, layout="contiguous")
    two, eight = (relative(on_ranks(world, case)[0], masked(case)) for world in (2, 8))
    for name in two:
        assert eight[name] < 1.2 * two[name], (name, two, eight)


def test_large_scores_overflow_nothing() -> None:
    case = Case(documents=("one", "edge + 1"), size=1e3)
    (found,) = on_ranks(4, case)
    assert all(tensor.isfinite().all() for tensor in found.values())
    torch.testing.assert_close(found["out"], masked(case)["out"].float(), atol=2e-3, rtol=0)


def _autocast() -> tuple[torch.dtype, torch.dtype | None]:
    q = torch.randn(1, 8, 2, 16).transpose(1, 2).requires_grad_()
    v = torch.randn(1, 2, 8, 16, dtype=torch.bfloat16)
    plan = build_plan(zigzag(8, 1), [bounds_of_lengths([8])], 0).to_tensor()
    with torch.autocast("cpu", torch.bfloat16):
        out = ring_attention(q, q, v, RingState(plan, alone().name, "ring"), 0.25)
    out.float().sum().backward()
    return out.dtype, q.grad.dtype if q.grad is not None else None


def test_formats_mixed_by_autocast_are_made_one() -> None:
    assert run_ranks(1, _autocast) == [(torch.bfloat16, torch.float32)]


def _probe(case: Case, changed: int) -> tuple[Tensor, Tensor]:
    """This rank's output, and that after the token `changed` has other keys, values and queries."""

    class Changed(Case):
        def tensors(self) -> tuple[Tensor, ...]:
            tensors = super().tensors()
            for tensor in tensors[:3]:
                tensor[:, :, changed] += 1
            return tensors

    ring = the_ring()
    return attend(case, ring)["out"], attend(Changed(**vars(case)), ring)["out"]


@pytest.mark.parametrize("changed", [5, 20, 40])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_token_changes_nothing_before_it_nor_in_other_documents(
    layout: str, changed: int
) -> None:
    case = Case(documents=("edge + 1",), layout=layout)  # documents [0, 17), [17, 33), [33, 64)
    cut = case.cut(2)[0]
    pairs = zip(*run_ranks(2, _probe, case, changed), strict=True)
    before, after = (cut.unshard(parts, 2) for parts in pairs)
    same = (before == after).flatten(0, 1).all(-1).all(0)  # (S,)
    end = next(end for end in (17, 33, 64) if end > changed)
    assert same[:changed].all() and same[end:].all()
    assert not same[changed:end].any()
