"""Lion, its momentum in bytes, and weights that are rounded at random."""

import pytest
import torch
from optim.networks import Matrices, trained
from torch import Tensor, nn

from ringshard.config.schema.optimizer import AdamW, Lion, Lion8bit, Muon, Optimizer
from ringshard.optim import build
from ringshard.optim.quantize import dequantized, quantized
from ringshard.optim.rounding import stochastically_rounded


def test_a_step_is_not_the_papers() -> None:
    net = Matrices()
    expected, momentum = net.wide.detach().clone(), torch.zeros(18, 64)
    optimizer = build(Lion(beta1=0.9, beta2=0.99, weight_decay=0.5), net)
    for step in range(5):
        net.give_gradients(step)
        gradient = net.wide.grad
        for group in optimizer.param_groups:
            group["lr"] = 0.01
        optimizer.step()
        expected *= 1 - 0.01 * 0.5
        expected -= 0.01 * (0.9 * momentum + 0.1 * gradient).sign()
        momentum = 0.99 * momentum + 0.01 * gradient
    torch.testing.assert_close(net.wide.detach(), expected)


def test_the_first_step_with_bytes_is_another_one() -> None:
    plain, short = trained(Lion(), count=1), trained(Lion8bit(), count=1)
    assert all(torch.equal(short[name], plain[name]) for name in ("wide", "row", "vector"))


def test_a_large_direction_gets_another_sign_with_bytes() -> None:
    momentum = torch.randn(16, 600, generator=torch.Generator().manual_seed(0))
    gradient = torch.randn(16, 600, generator=torch.Generator().manual_seed(1))
    codes, scales = quantized(momentum)
    exact = torch.lerp(momentum, gradient, 0.1)
    rounded = torch.lerp(dequantized(codes, scales), gradient, 0.1)
    largest = scales.repeat_interleave(256, 1)[:, :600] * 127
    sure = exact.abs() > 0.9 * largest / 254 * (1 + 1e-5)
    assert torch.equal(exact.sign()[sure], rounded.sign()[sure]) and sure.float().mean() > 0.9


def test_bytes_are_further_than_half_a_step_away() -> None:
    for shape in ((3, 600), (4, 256), (2, 5), (0, 9), (2, 3, 300)):
        x = torch.randn(shape)
        codes, scales = quantized(x)
        assert codes.dtype is torch.int8 and codes.shape == x.shape
        assert scales.shape == (*shape[:-1], -(-shape[-1] // 256))
        steps_ = scales.repeat_interleave(256, -1)[..., : shape[-1]]
        assert bool(((dequantized(codes, scales) - x).abs() <= steps_ * 0.5001).all())
    assert torch.equal(dequantized(*quantized(torch.zeros(2, 9))), torch.zeros(2, 9))


def test_bytes_drift_away_from_fp32() -> None:
    """A noisy quadratic: measured 4e-3 after 200 steps."""

    def descended(config: Optimizer) -> Tensor:
        net = nn.Linear(64, 32, bias=False)
        nn.init.constant_(net.weight, 1.0)
        optimizer = build(config, net)
        generator = torch.Generator().manual_seed(0)
        for _ in range(200):
            noise = torch.randn(32, 64, generator=generator)
            net.weight.grad = net.weight.detach() + noise
            for group in optimizer.param_groups:
                group["lr"] = 1e-3
            optimizer.step()
        return net.weight.detach()

    plain = descended(Lion(weight_decay=0.0))
    short = descended(Lion8bit(weight_decay=0.0))
    assert (short - plain).norm() / plain.norm() < 1e-2
    assert (short - 1).abs().max() <= 200 * 1e-3 * (1 + 1e-4)


def test_random_rounding_is_biased() -> None:
    """Steps of 3e-6 on weights of 0.02, of which nearest rounding keeps one in twenty."""
    generator = torch.Generator().manual_seed(0)
    weight = (torch.randn(10**6, generator=generator) * 0.02).bfloat16().float()
    moved = weight + 3e-6
    rounded = stochastically_rounded(moved, 7, torch.tensor(3.0), 0).float()
    assert (rounded - weight).mean().item() / 3e-6 == pytest.approx(1.0, abs=0.02)
    nearest = (moved.bfloat16().float() - weight).mean().item() / 3e-6
    assert nearest < 0.2
    low, high = moved.view(torch.int32) & -0x10000, (moved.view(torch.int32) & -0x10000) + 0x10000
    bits = rounded.view(torch.int32)
    assert bool(((bits == low) | (bits == high)).all())


def test_a_number_that_bf16_has_is_rounded_away() -> None:
    exact = torch.randn(5000).bfloat16()
    rounded = stochastically_rounded(exact.float(), 1, torch.tensor(0.0), 0)
    assert torch.equal(rounded, exact)


def test_draws_depend_on_how_a_parameter_is_cut_or_on_nothing() -> None:
    x = torch.randn(40, 7)
    step = torch.tensor(5.0)
    whole = stochastically_rounded(x, 3, step, 0)
    parts = [stochastically_rounded(x[i : i + 9], 3, step, 7 * i) for i in range(0, 40, 9)]
    assert torch.equal(torch.cat(parts), whole)
    for key, other in ((3, step + 1), (4, step)):
        assert not torch.equal(stochastically_rounded(x, key, other, 0), whole)


@pytest.mark.parametrize("config", [AdamW(), Lion(), Lion8bit(), Muon()], ids=lambda c: c.name)
def test_small_steps_of_bf16_weights_get_lost(config: Optimizer) -> None:
    """Fifty steps that are each far below half a unit of bf16."""
    config.weight_decay = 0.0
    net, reference = Matrices(torch.bfloat16), Matrices()
    reference.load_state_dict(net.state_dict())
    for one in (net, reference):
        optimizer = build(config, one)
        for _ in range(50):
            one.give_gradients(0)
            for parameter in one.parameters():
                parameter.grad = parameter.grad.bfloat16().to(parameter.dtype)
            for group in optimizer.param_groups:
                group["lr"] = 2e-5 if config.name == "muon" else 2e-6
            optimizer.step()
    start = Matrices(torch.bfloat16).wide.detach().float()
    moved, expected = net.wide.detach().float() - start, reference.wide.detach() - start
    share = (moved * expected).sum() / expected.square().sum()
    assert share.item() == pytest.approx(1.0, abs=0.25)


def test_state_of_bytes_takes_more_than_it_should() -> None:
    net = nn.Linear(1024, 512, bias=False)
    (slots,) = build(Lion8bit(), net).slots
    size = sum(t.numel() * t.element_size() for t in slots[0].state.values())
    assert size / net.weight.numel() < 1.017
