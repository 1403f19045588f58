"""Matrices on spheres: the norm stays, the step is an angle, zero stays where it is."""

import math
from dataclasses import replace

import pytest
import torch
from optim.networks import Matrices, everything, steps
from torch import Tensor, nn

from ringshard.config.schema.optimizer import (
    AdamWHyperball,
    MuonHyperball,
    MuonMonaHyperball,
    Optimizer,
)
from ringshard.errors import ConfigError
from ringshard.optim import build
from ringshard.optim.hyperball import on_sphere

CONFIGS: list[Optimizer] = [
    MuonHyperball(),
    MuonMonaHyperball(),
    AdamWHyperball(),
    MuonHyperball(normalize_update=False),
    AdamWHyperball(normalize_update=False),
]


def names(config: Optimizer) -> str:
    return f"{config.name}-{vars(config)['normalize_update']}"


def one_rank(_: Tensor) -> None:
    """All of a matrix is here."""


def moved(weight: Tensor, update: Tensor, eta: float, normalize: bool = True) -> Tensor:
    rates = torch.tensor([eta], dtype=torch.float64)
    return on_sphere([weight], [update], weight.norm()[None], rates, normalize, one_rank)[0]


@pytest.mark.parametrize("shape", [(64, 64), (256, 512), (1024, 1024)])
def test_the_norm_drifts_over_100_steps(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(shape, generator=generator)
    radius = weight.double().norm()
    rates = torch.tensor([0.02], dtype=torch.float64)
    for _ in range(100):
        update = torch.randn(shape, generator=generator)
        held = radius.float()[None]
        weight = on_sphere([weight], [update], held, rates, True, one_rank)[0]
    assert abs(weight.double().norm() / radius - 1) < 1e-6


@pytest.mark.parametrize("config", CONFIGS, ids=names)
def test_an_optimizer_leaves_the_sphere(config: Optimizer) -> None:
    net = Matrices()
    before = {name: p.detach().double().clone() for name, p in net.named_parameters()}
    steps(net, config, count=100)
    for name in ("wide", "short", "row", "tall"):
        after = net.get_parameter(name).detach().double()
        assert abs(after.norm() / before[name].norm() - 1) < 1e-6
        assert (after - before[name]).norm() > 0.02 * before[name].norm()
    for expert, first in zip(net.experts.detach().double(), before["experts"], strict=True):
        assert abs(expert.norm() / first.norm() - 1) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "config", [MuonMonaHyperball(), AdamWHyperball(normalize_update=False)], ids=names
)
def test_the_norm_drifts_over_1000_steps(config: Optimizer, dtype: torch.dtype) -> None:
    """At any of them. Weights in bf16 are rounded at random, each by half a unit (2⁻⁸) or less, but
    the next step begins from what they are: the norm's deviation, 2⁻⁸ √3 / √numbers, stays."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(64, 64, generator=generator).to(dtype)
    net = nn.ParameterList([start.clone()])
    optimizer, radius = build(config, net), start.double().norm()
    worst = torch.zeros((), dtype=torch.float64)
    for _ in range(1000):
        net[0].grad = torch.randn(64, 64, generator=generator).to(dtype)
        optimizer.step()
        worst = worst.maximum((net[0].detach().double().norm() / radius - 1).abs())
    assert worst < (1e-6 if dtype is torch.float32 else 4 * 2**-8 * math.sqrt(3 / 64**2))
    assert (net[0].detach() - start).norm() > 0.1 * radius


def test_an_update_along_the_sphere_turns_by_another_angle_than_the_rate_says() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(30, 20, generator=generator, dtype=torch.float64)
    update = torch.randn(30, 20, generator=generator, dtype=torch.float64)
    update -= (update * weight).sum() / weight.square().sum() * weight
    for eta in (0.01, 0.3):
        after = moved(weight, update, eta)
        cosine = (after * weight).sum() / weight.square().sum()
        assert cosine.item() == pytest.approx(math.cos(math.atan(eta)), abs=1e-7)
        assert (after - weight).norm() <= 2 * eta * weight.norm()


def test_the_length_of_a_normalized_update_counts() -> None:
    weight, update = torch.randn(5, 4), torch.randn(5, 4)
    torch.testing.assert_close(moved(weight, update, 0.1), moved(weight, 50 * update, 0.1))
    near, far = (moved(weight, k * update, 0.1, normalize=False) for k in (1, 5))
    assert not torch.allclose(near, far)


@pytest.mark.parametrize("config", CONFIGS, ids=names)
def test_no_gradient_moves_a_matrix_or_makes_it_nan(config: Optimizer) -> None:
    net = Matrices()
    optimizer = build(config, net)
    before = everything(net, optimizer)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    after = everything(net, optimizer)
    for name in ("wide", "short", "experts", "fused.weight"):
        assert torch.equal(after[name], before[name])


def test_a_matrix_of_zeros_is_not_refused_by_name() -> None:
    net = Matrices()
    nn.init.zeros_(net.short)
    for config in (MuonHyperball(), AdamWHyperball()):
        with pytest.raises(ConfigError, match="short begins at zero"):
            build(config, net)
        build(replace(config, roles={"other": "short"}), net)
        build(config, net, initialized=False)  # a checkpoint will bring weights and radii


def test_each_fused_matrix_has_not_a_norm_of_its_own() -> None:
    net = Matrices()
    config = MuonHyperball(splits={"fused": [8, 4, 12]})
    before = net.fused.weight.detach().clone()
    optimizer = steps(net, config, count=10)
    assert everything(net, optimizer)["fused.weight.radius"].shape == (3,)
    for rows in (slice(0, 8), slice(8, 12), slice(12, 24)):
        after = net.fused.weight.detach()[rows].norm()
        assert after.item() == pytest.approx(before[rows].norm().item(), rel=1e-6)
