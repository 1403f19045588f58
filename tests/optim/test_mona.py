"""MONA in one buffer is the paper's recursion in two."""

import itertools

import pytest
import torch
from optim.networks import Matrices, everything, steps
from torch import Tensor

from ringshard.config.schema.optimizer import MuonMona
from ringshard.optim import mona


def stream(noise: float = 1.0, count: int = 60) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        1 + noise * torch.randn(40, generator=generator, dtype=torch.float64) for _ in range(count)
    ]


def one_buffer(gradients: list[Tensor], beta: float, alpha: float | None) -> list[Tensor]:
    slow, found = torch.zeros_like(gradients[0]), []
    for step, gradient in enumerate(gradients):
        share = mona.weight(alpha, beta)
        used, slow = mona.accelerated(gradient, slow, torch.tensor(step), beta, share)
        found.append(used)
    return found


def two_buffers(gradients: list[Tensor], beta: float, alpha: float) -> list[Tensor]:
    """As the paper writes it."""
    average, before, found = torch.zeros_like(gradients[0]), gradients[0], []
    for gradient in gradients:
        average = beta * average + (1 - beta) * (gradient - before)
        before = gradient
        found.append(gradient + alpha * average)
    return found


@pytest.mark.parametrize(("beta", "alpha"), itertools.product([0.9, 0.975, 0.99], [None, 0.1]))
def test_one_buffer_is_not_the_papers_two(beta: float, alpha: float | None) -> None:
    rule = -1 / (2 * (1 - beta)) if alpha is None else alpha
    for mine, theirs in zip(
        one_buffer(stream(), beta, alpha), two_buffers(stream(), beta, rule), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_the_papers_rule_is_not_the_mean_of_gradient_and_slow_average() -> None:
    gradient, slow = stream(count=2)
    used, _ = mona.accelerated(gradient, slow, torch.tensor(3), 0.975, mona.weight(None, 0.975))
    torch.testing.assert_close(used, gradient / 2 + slow / 2)


def test_without_memory_it_is_not_the_mean_of_two_gradients() -> None:
    gradients = stream(count=4)
    found = one_buffer(gradients, 0.0, None)
    for before, gradient, used in zip(gradients, gradients[1:], found[1:], strict=False):
        torch.testing.assert_close(used, (before + gradient) / 2)


def test_a_constant_gradient_is_changed() -> None:
    for used in one_buffer([torch.full((3,), 2.5)] * 9, 0.9, 5.0):
        torch.testing.assert_close(used, torch.full((3,), 2.5))


def test_what_is_used_grows_without_bound() -> None:
    """As it does where the accelerated gradient is kept for the raw one."""
    gradients = stream()
    ratio = one_buffer(gradients, 0.975, None)[-1].norm() / gradients[-1].norm()
    assert 0.4 < ratio < 1.1


def test_the_slow_average_is_not_of_the_raw_gradients() -> None:
    net = Matrices()
    optimizer = steps(net, MuonMona(mona_beta=0.9), count=40)
    net.give_gradients(0)
    expected = net.wide.grad.clone()
    for step in range(1, 40):
        net.give_gradients(step)
        expected = 0.9 * expected + 0.1 * net.wide.grad
    torch.testing.assert_close(everything(net, optimizer)["wide.slow_gradient"], expected)
