"""The chunked head: the numbers of plain cross-entropy, never its logits."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ringshard.model.head import IGNORED, chunked_cross_entropy

N, D, V = 37, 12, 101


def inputs(dtype: torch.dtype = torch.float64, bias: bool = False) -> list[Any]:
    g = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, D, generator=g).to(dtype).requires_grad_() for n in (N, V))
    targets = torch.randint(V, (N,), generator=g)
    targets[::5] = IGNORED
    b = torch.randn(V, generator=g).to(dtype).requires_grad_() if bias else None
    return [hidden, weight, b, targets]


def plain(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight, bias).double(), targets, reduction="none")


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk", [1, 8, N, 1000])
def test_loss_and_gradients_are_those_of_plain_cross_entropy(chunk: int, bias: bool) -> None:
    args = inputs(bias=bias)
    leaves = [x for x in args[:3] if x is not None]
    total, losses, _ = chunked_cross_entropy(*args, chunk)
    expected = plain(*args)
    torch.testing.assert_close(losses, expected.detach())
    torch.testing.assert_close(total, expected.sum())
    assert not losses.requires_grad
    got = torch.autograd.grad(total * 0.3, leaves)
    torch.testing.assert_close(got, torch.autograd.grad(expected.sum() * 0.3, leaves))


class _Repeatable(torch.autograd.Function):
    """gradcheck goes backward several times; this makes the graph anew each time."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        ctx.args = args
        return chunked_cross_entropy(*args)[0]

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        leaves = [x.detach().requires_grad_() for x in ctx.args[:3]]
        with torch.enable_grad():
            total, *_ = chunked_cross_entropy(*leaves, *ctx.args[3:])
        return *torch.autograd.grad(total, leaves, scale), None, None


def test_gradients_are_the_finite_differences() -> None:
    assert torch.autograd.gradcheck(lambda *a: _Repeatable.apply(*a, 8), inputs(bias=True))


def test_bf16_input_gets_an_fp32_softmax_and_fp32_sums_over_chunks() -> None:
    args = inputs(torch.bfloat16)
    total, losses, _ = chunked_cross_entropy(*args, 8)
    assert total.dtype == losses.dtype == torch.float32
    exact = [x.detach().double().requires_grad_() for x in args[:2]]
    expected = plain(*exact, None, args[3]).sum()
    torch.testing.assert_close(total.double(), expected, rtol=2e-3, atol=0)
    for got, want in zip(
        torch.autograd.grad(total, args[:2]), torch.autograd.grad(expected, exact), strict=True
    ):
        assert got.dtype == torch.bfloat16
        assert (got.double() - want).norm() / want.norm() < 6e-3


def test_rows_that_are_not_learned_cannot_spoil_the_others() -> None:
    hidden, weight, _, targets = inputs()
    with torch.no_grad():
        hidden[0] = float("nan")  # targets[0] is ignored
    total, losses, _ = chunked_cross_entropy(hidden, weight, None, targets, 8)
    total.backward()
    assert losses[0] == 0 and total.isfinite()
    assert weight.grad is not None and weight.grad.isfinite().all()
    assert hidden.grad is not None and not hidden.grad[targets == IGNORED].any()


def test_a_batch_without_learned_tokens_has_zero_loss_and_gradient() -> None:
    hidden, weight, _, targets = inputs()
    total, *_ = chunked_cross_entropy(hidden, weight, None, torch.full_like(targets, IGNORED), 8)
    total.backward()
    assert total == 0 and weight.grad is not None and not weight.grad.any()


class _Largest(TorchDispatchMode):
    """Records the largest tensor that any operation returns, and how many products were made."""

    elements = 0
    products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.products += func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm_)
        for item in result if isinstance(result, tuple | list) else [result]:
            if isinstance(item, Tensor):
                self.elements = max(self.elements, item.numel())
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_logits_of_the_whole_batch_never_exist(dtype: torch.dtype) -> None:
    args = inputs(dtype)
    with _Largest() as seen:
        chunked_cross_entropy(*args, 8)[0].backward()
    assert seen.elements == max(V * D, 8 * V) < N * V


def test_evaluation_makes_one_product_per_chunk() -> None:
    args = inputs()
    with torch.no_grad(), _Largest() as seen:
        total, *_ = chunked_cross_entropy(*args, 8)
    assert seen.products == -(-N // 8) and not total.requires_grad


@pytest.mark.parametrize("chunk", [1, 8, N, 1000])
def test_a_target_that_is_not_the_likeliest_is_a_hit(chunk: int) -> None:
    hidden, weight, _, targets = inputs()
    likeliest = F.linear(hidden, weight).argmax(1)
    targets = torch.where((torch.arange(N) % 3 == 0) & (targets != IGNORED), likeliest, targets)
    with torch.no_grad():
        *_, hits = chunked_cross_entropy(hidden, weight, None, targets, chunk)
    assert torch.equal(hits, (likeliest == targets) & (targets != IGNORED))
    assert 5 < hits.sum() < N - 10
    assert chunked_cross_entropy(hidden, weight, None, targets, chunk)[2] is None


def test_a_frozen_head_makes_no_weight_gradient() -> None:
    hidden, weight, _, targets = inputs()
    with _Largest() as seen:
        chunked_cross_entropy(hidden, weight.detach(), None, targets, 8)[0].backward()
    assert seen.products == 2 * -(-N // 8) and hidden.grad is not None


def test_a_second_backward_pass_is_refused() -> None:
    total, *_ = chunked_cross_entropy(*inputs(), 8)
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second backward"):
        total.backward()
