"""Who decays, and that the optimizer's state is there before the first step."""

import pytest
import torch
from torch import nn

from ringshard.config.schema.optimizer import AdamW
from ringshard.optim import build


def model() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(11, 4), nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 11))
    net[3].weight = net[0].weight
    return net


def step(net: nn.Module, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> None:
    net(tokens).logsumexp(-1).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_matrices_decay_and_vectors_do_not() -> None:
    net = model()
    decayed, others = build(AdamW(weight_decay=0.3), net).param_groups
    assert decayed["weight_decay"] == 0.3 and others["weight_decay"] == 0.0
    assert {id(p) for p in decayed["params"]} == {id(net[0].weight), id(net[2].weight)}
    assert {id(p) for p in others["params"]} == {id(p) for p in net.parameters() if p.dim() < 2}


def test_a_frozen_parameter_is_left_out() -> None:
    net = model()
    net[2].requires_grad_(False)
    assert id(net[2].weight) not in {id(p) for p in build(AdamW(), net).state}


def test_state_made_in_advance_changes_no_step() -> None:
    """Against torch's own AdamW, unfused and with the state it makes at its first step."""
    config = AdamW(lr=1e-2, weight_decay=0.1)
    ours, theirs = model(), model()
    optimizer = build(config, ours)
    assert all(state["step"] == 0 for state in optimizer.state.values())
    groups = [
        {
            "params": [p for p in theirs.parameters() if (p.dim() >= 2) == matrices],
            "weight_decay": w,
        }
        for matrices, w in ((True, 0.1), (False, 0.0))
    ]
    plain = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, foreach=False)
    for index in range(5):
        tokens = torch.arange(index, index + 6)
        step(ours, optimizer, tokens)
        step(theirs, plain, tokens)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_the_fused_kernel_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, fused = [], torch._fused_adamw_
    monkeypatch.setattr(torch, "_fused_adamw_", lambda *a, **k: calls.append(fused(*a, **k)))
    net = model()
    step(net, build(AdamW(), net), torch.arange(6))
    assert len(calls) == 2  # with weight decay and without
