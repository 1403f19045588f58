"""Muon on one process: torch's own, to the bit, where torch's own can be used."""

import math
from dataclasses import replace

import pytest
import torch
from optim.networks import Matrices, everything, steps, trained
from torch import nn

from ringshard.config.schema.optimizer import Coefficients, Muon, MuonMona, Scale
from ringshard.config.schema.precision import Dtype
from ringshard.optim import build
from ringshard.optim.muon import scale

KELLER = Muon(coefficients=Coefficients.keller, ns_dtype=Dtype.bf16)


@pytest.mark.parametrize("rule", [Scale.original, Scale.match_rms_adamw], ids=lambda s: s.name)
def test_weights_are_not_those_of_torchs_muon(rule: Scale) -> None:
    torch.manual_seed(0)
    shapes = [(24, 40), (40, 24), (16, 16)]
    ours = nn.ParameterList([torch.randn(shape) for shape in shapes])
    theirs = nn.ParameterList([parameter.detach().clone() for parameter in ours])
    optimizer = build(replace(KELLER, scale=rule, weight_decay=0.1), ours)
    reference = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, adjust_lr_fn=rule.name)
    for group in optimizer.param_groups:
        group["lr"] = 0.02
    for _ in range(10):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape)
            b.grad = a.grad.clone()
        optimizer.step()
        reference.step()
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("nesterov", [True, False])
def test_the_momentum_is_not_the_average_of_gradients(nesterov: bool) -> None:
    """The iteration divides by a norm; the momentum must not notice (pytorch#194664)."""
    net = Matrices()
    optimizer = steps(net, Muon(nesterov=nesterov, momentum=0.9), count=5)
    expected = torch.zeros(18, 64)
    for step in range(5):
        net.give_gradients(step)
        expected = 0.9 * expected + 0.1 * net.wide.grad
    torch.testing.assert_close(everything(net, optimizer)["wide.momentum"], expected)


def test_scales_of_a_matrix_and_of_its_transpose() -> None:
    assert scale(Scale.original, 100, 25) == 2 and scale(Scale.original, 25, 100) == 1
    assert scale(Scale.spectral, 100, 25) == 2 and scale(Scale.spectral, 25, 100) == 0.5
    assert scale(Scale.match_rms_adamw, 25, 100) == scale(Scale.match_rms_adamw, 100, 25) == 2


def test_an_update_has_not_the_length_of_adamws() -> None:
    net = Matrices()
    before = net.wide.detach().clone()
    steps(net, Muon(weight_decay=0.0), count=1, lr=1.0)
    rms = (net.wide.detach() - before).square().mean().sqrt().item()
    assert math.isclose(rms, 0.2, rel_tol=0.05)


def test_without_weight_acceleration_does_not_vanish() -> None:
    plain, accelerated = trained(Muon()), trained(MuonMona(mona_alpha=0.0))
    assert all(torch.equal(accelerated[name], tensor) for name, tensor in plain.items())


def test_experts_are_not_orthogonalized_each_by_itself() -> None:
    net = Matrices()
    net.give_gradients(0)
    gradients = net.experts.grad.clone()
    before = net.experts.detach().clone()
    steps(net, Muon(weight_decay=0.0), count=1)
    alone = nn.ParameterList([expert.clone() for expert in before])
    optimizer = build(Muon(weight_decay=0.0, lr=0.02), alone)
    for parameter, gradient in zip(alone, gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()
    torch.testing.assert_close(torch.stack(list(alone)), net.experts.detach())
