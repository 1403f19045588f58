"""One optimizer step."""

import pytest
import torch
from torch import nn

from ringshard.config.schema.optimizer import AdamW
from ringshard.optim import build
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
