"""The optimizer of a job."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from torch import nn
from torch.optim import Optimizer

from ringshard import registry
from ringshard.config.roles import HIDDEN
from ringshard.config.schema import optimizer as schema
from ringshard.optim.adamw import AdamW, AdamWHyperball
from ringshard.optim.layout import Layout, layouts
from ringshard.optim.lion import Lion, Lion8bit
from ringshard.optim.muon import Muon
from ringshard.optim.release import Release
from ringshard.optim.roles import Parameter, parameters, table
from ringshard.optim.ruled import Group, Rule, Ruled

Hidden = schema.Muon | schema.AdamWHyperball


def build(
    config: schema.Optimizer, model: nn.Module, seed: int = 0, initialized: bool = True
) -> Optimizer:
    """The optimizer `config` asks for, over the parameters of `model` that are trained.

    Call it when the parameters have their storage and are tied and sharded, on all ranks at once.
    seed: of the random rounding of bf16 weights; initialized: whether the weights are there, or
    garbage that a checkpoint overwrites. A registered one is called as `factory(groups, lr=…,
    **args)`, as any class of torch.optim; its state should exist from the start, in tensors, so
    that it can be saved before the first step.
    Raises ConfigError for an unknown name, and for roles and splits that don't fit the model.
    """
    if isinstance(config, schema.ByRole):
        return Ruled(_groups(config, model, initialized), config.lr, seed, config.ema_decay)
    if isinstance(config, schema.AdamW8bit | schema.AdamW4bit):
        from ringshard.optim.lowbit import adamw

        return adamw(config, decay_groups(model, config.weight_decay))
    factory = cast(Callable[..., Optimizer], registry.lookup("optimizer", config.name))
    with registry.blamed(f"optimizer.name={config.name}"):
        return factory(decay_groups(model, config.weight_decay), lr=config.lr, **config.args)


def release(config: schema.Optimizer, optimizer: Optimizer, max_norm: float) -> Release | None:
    """What uses gradients within the backward pass, if `config` asks for it; max_norm: see
    Release."""
    if not (isinstance(config, schema.ByRole) and config.release_gradients):
        return None
    assert isinstance(optimizer, Ruled)
    return Release(optimizer, config.release_clip, max_norm)


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two parameter groups: weights with two or more dimensions decay, vectors and scalars don't.

    So embeddings and the head decay, tied or not; norms and biases do not. This is the rule of
    nanoGPT (`configure_optimizers`), hence of most published settings.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]


def who_gets_what(optimizer: Optimizer, model: nn.Module, config: schema.Optimizer) -> list[str]:
    """The lines of a table: update rule, role, names, shape, number of parameters."""
    roles = config.roles if isinstance(config, schema.ByRole) else {}
    found = parameters(model, roles)
    rules = dict.fromkeys((parameter.name for parameter in found), config.name)
    if isinstance(optimizer, Ruled):
        for rule, slots in zip(optimizer.rules, optimizer.slots, strict=True):
            rules |= dict.fromkeys((slot.name for slot in slots), rule.name)
    return table([(rules[parameter.name], parameter) for parameter in found])


def _groups(config: schema.ByRole, model: nn.Module, initialized: bool) -> list[Group]:
    found = parameters(model, config.roles)
    if not isinstance(config, Hidden):
        return _by_decay(lambda: _rule(config), found, config)
    hidden = [p for p in found if p.role in HIDDEN]
    others = [p for p in found if p.role not in HIDDEN]
    matrices = layouts(hidden, config.splits)
    lr_scale = 1.0 if config.adamw_lr is None else config.adamw_lr / config.lr
    return [
        *_by_decay(lambda: _hidden_rule(config, matrices, initialized), hidden, config),
        *_by_decay(lambda: _rule(config), others, config, lr_scale),
    ]


def _hidden_rule(config: Hidden, found: dict[str, Layout], initialized: bool) -> Rule:
    if isinstance(config, schema.Muon):
        return Muon(config, found, initialized)
    return AdamWHyperball(config, found, initialized)


def _rule(config: schema.ByRole) -> Rule:
    if isinstance(config, schema.Lion8bit):
        return Lion8bit(config)
    if isinstance(config, schema.Lion):
        return Lion(config)
    assert isinstance(config, schema.Adam)
    return AdamW(config)


def _by_decay(
    rule: Callable[[], Rule],
    members: Sequence[Parameter],
    config: schema.ByRole,
    lr_scale: float = 1.0,
) -> list[Group]:
    """A group of those that decay, and one of those that do not."""
    decayed = [p for p in members if p.role in config.decayed]
    others = [p for p in members if p.role not in config.decayed]
    return [
        Group(rule(), part, decay, lr_scale)
        for part, decay in ((decayed, config.weight_decay), (others, 0.0))
        if part
    ]
