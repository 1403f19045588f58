"""One optimizer step."""

import pytest
import torch
from ranks import run_ranks
from torch import nn

from ringshard.config.schema.optimizer import AdamW
from ringshard.optim import build
from ringshard.train.recorder import Peak, Recorder
from ringshard.train.step import clip_gradients, update


def _after_two_steps(poison: float) -> tuple[list[float], float]:
    """Parameters after a good step and one with gradient `poison`, and the norm of that one."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = build(AdamW(lr=0.1), model)
    for gradient in (1.0, poison):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, gradient)
        norm = clip_gradients(model, 1.0)
        update(optimizer, 0.1, norm)
    return torch.cat([p.detach().flatten() for p in model.parameters()]).tolist(), norm.item()


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_changes_the_model(poison: float) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = build(AdamW(lr=0.1), model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    update(optimizer, 0.1, clip_gradients(model, 1.0))
    once = torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()
    assert _after_two_steps(poison)[0] == once
    assert _after_two_steps(1.0)[0] != once


def _clipped(max_norm: float) -> tuple[float, float]:
    model = nn.Linear(3, 1)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    norm = clip_gradients(model, max_norm)
    after = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    return norm.item(), after.item()


def test_clipping_leaves_a_longer_gradient_or_hides_the_norm() -> None:
    norm, after = _clipped(0.5)
    assert norm == pytest.approx(2.0)
    assert after == pytest.approx(0.5, rel=1e-5)
    assert _clipped(0.0) == pytest.approx((2.0, 2.0))


def test_the_norm_of_bf16_gradients_has_three_digits() -> None:
    model = nn.Linear(100, 30, dtype=torch.bfloat16)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    assert clip_gradients(model, 0.0).item() == pytest.approx(3030**0.5, rel=1e-6)


def _rates_of_ten_tokens() -> dict[str, float]:
    recorder = Recorder(Peak(2.0, 1.0, devices=2), torch.device("cpu"), [], seconds=1e6)
    recorder.add({"train/targets": 3}, torch.tensor(1.0), torch.tensor(1.0), tokens=10)
    return recorder.flush()[0]


def test_speed_counts_only_tokens_that_are_learned_or_does_not_count_them() -> None:
    (found,) = run_ranks(1, _rates_of_ten_tokens)
    assert found["perf/targets_per_s"] == pytest.approx(3e-6, rel=1e-3)
    assert found["perf/targets_per_s_per_device"] == pytest.approx(1.5e-6, rel=1e-3)
    assert found["perf/tokens_per_s"] == pytest.approx(1e-5, rel=1e-3)
    assert found["perf/mfu"] == pytest.approx(2e-5, rel=1e-3)
