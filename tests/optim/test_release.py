"""Updated within the backward pass: the same weights as after it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from parity.curves import Curve, RaggedRows, Topology, job, train_job
from runs import run_attempt, small_job
from torch import Tensor, nn

from ringshard.config.schema.optimizer import (
    AdamW,
    AdamWHyperball,
    ByRole,
    Lion,
    Lion8bit,
    Muon,
    MuonMonaHyperball,
    ReleaseClip,
)
from ringshard.config.schema.parallelism import Parallelism
from ringshard.optim import build, release
from ringshard.train.step import clip_gradients, update

RULES: list[ByRole] = [AdamW(), Lion(), Lion8bit(), Muon(), MuonMonaHyperball(), AdamWHyperball()]
LR = 0.02


def network() -> nn.Module:
    """The embedding is the head."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 11))
    net[3].weight = net[0].weight
    return net


def loss(net: nn.Module, step: int) -> Tensor:
    tokens = torch.arange(step, step + 6) % 11
    return nn.functional.cross_entropy(net(tokens), (tokens + 1) % 11)


def parameters(net: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in net.parameters()]


def released(config: ByRole, max_norm: float = 0.0, steps: int = 6, **more: Any) -> Any:
    net = network()
    config = replace(config, release_gradients=True, **more)
    optimizer = build(config, net)
    releasing = release(config, optimizer, max_norm)
    assert releasing is not None
    norms = []
    for step in range(steps):
        releasing.begin(LR)
        loss(net, step).backward()
        norms.append(releasing.finish().item())
        assert all(parameter.grad is None for parameter in net.parameters())
    return net, optimizer, norms


@pytest.mark.parametrize("config", RULES, ids=lambda c: c.name)
def test_a_released_step_is_another_one(config: ByRole) -> None:
    net, expected, norms = network(), [], []
    optimizer = build(config, net)
    for step in range(6):
        loss(net, step).backward()
        norms.append(clip_gradients(net, 0.0).item())
        update(optimizer, LR, torch.ones(()))
    expected = parameters(net)
    found, own, own_norms = released(config)
    for a, b in zip(expected, parameters(found), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(own_norms, norms, rtol=1e-5)
    assert all(slot.state["step"] == 6 for slots in own.slots for slot in slots)


def test_a_hook_is_called_for_another_number_than_the_parameters() -> None:
    net = network()
    config = AdamW(release_gradients=True)
    optimizer = build(config, net)
    releasing = release(config, optimizer, 0.0)
    calls, step_slots = [], optimizer.step_slots
    optimizer.step_slots = lambda *a: calls.append(step_slots(*a))
    releasing.begin(LR)
    loss(net, 0).backward()
    assert len(calls) == len(list(net.parameters()))


def test_clipping_by_the_norm_before_is_not_clipping_by_that_norm() -> None:
    """Against gradients that are clipped by hand."""
    net, norms = network(), [0.0]
    optimizer = build(AdamW(), net)
    for step in range(6):
        loss(net, step).backward()
        factor = min(1.0, 0.1 / (norms[-1] + 1e-6)) if step else 1.0
        norms.append(clip_gradients(net, 0.0).item())
        for parameter in net.parameters():
            parameter.grad *= factor
        update(optimizer, LR, torch.ones(()))
    found, _, own = released(AdamW(), max_norm=0.1)
    np.testing.assert_allclose(own, norms[1:], rtol=1e-5)
    assert min(own) > 0.1
    for a, b in zip(parameters(net), parameters(found), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("clip", "max_norm", "lines"),
    [
        (ReleaseClip.previous_norm, 1.0, 1),
        (ReleaseClip.previous_norm, 0.0, 0),
        (ReleaseClip.per_tensor, 1.0, 0),
    ],
)
def test_a_run_clips_by_the_norm_before_and_does_not_say_so(
    clip: ReleaseClip, max_norm: float, lines: int, tmp_path: Path
) -> None:
    freed = small_job(tmp_path, steps=1, micro_batch=8, grad_clip=max_norm)
    freed.optimizer = AdamW(release_gradients=True, release_clip=clip)
    run_attempt(freed, tmp_path / "run", 1)
    said = (tmp_path / "run" / "attempts" / "1" / "rank-0.log").read_text()
    assert said.count("by the norm of the step before") == lines


def test_a_tensors_own_norm_is_exceeded() -> None:
    net, optimizer = network(), None
    optimizer = build(AdamW(), net)
    for step in range(6):
        loss(net, step).backward()
        for parameter in net.parameters():
            norm = parameter.grad.norm().item()
            parameter.grad *= min(1.0, 0.01 / (norm + 1e-6))
        update(optimizer, LR, torch.ones(()))
    found, _, _ = released(AdamW(), max_norm=0.01, release_clip=ReleaseClip.per_tensor)
    for a, b in zip(parameters(net), parameters(found), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)


def test_a_gradient_that_is_not_finite_reaches_its_weights_or_the_next_steps_clipping() -> None:
    net = network()
    config = Lion8bit(release_gradients=True)
    optimizer = build(config, net)
    releasing = release(config, optimizer, 1.0)
    before = parameters(net)
    releasing.begin(LR)
    (loss(net, 0) * float("nan")).backward()
    assert not releasing.finish().isfinite()
    assert all(torch.equal(a, b) for a, b in zip(before, parameters(net), strict=True))
    releasing.begin(LR)
    loss(net, 0).backward()
    assert releasing.finish().isfinite()
    assert not torch.equal(before[0], net[0].weight.detach())


def _curve(topology: Topology, config: ByRole, grad_clip: float) -> Curve:
    released_job = job(topology)
    released_job.optimizer, released_job.train.grad_clip = config, grad_clip
    return train_job(topology.world, released_job, RaggedRows())


@pytest.mark.rotated(3)
@pytest.mark.parametrize("config", [AdamW(lr=1e-2), Lion8bit(lr=2e-3)], ids=lambda c: c.name)
def test_released_under_fsdp_the_curve_is_another_one(config: ByRole) -> None:
    """With the norm before to clip by, which needs a sum over the ranks."""
    two_by_two = Topology(4, Parallelism(dp_replicate=2, dp_shard=2), 4)
    one = Topology(micro_batch=16)
    plain = _curve(one, config, 0.0)
    freed = replace(config, release_gradients=True)
    np.testing.assert_allclose(_curve(one, freed, 0.0).losses, plain.losses, rtol=1e-5)
    clipped = _curve(one, freed, 0.3)
    assert abs(clipped.losses[-1] / plain.losses[-1] - 1) > 1e-4 or config.name == "lion8bit"
    for topology in (Topology(2, micro_batch=8), two_by_two):
        found = _curve(topology, freed, 0.3)
        np.testing.assert_allclose(found.losses, clipped.losses, rtol=1e-5)
        np.testing.assert_allclose(found.norms, clipped.norms, rtol=1e-5)
