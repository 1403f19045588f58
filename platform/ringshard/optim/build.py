"""The optimizer of a job."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn
from torch.optim import Optimizer

from ringshard import registry
from ringshard.config.schema import optimizer as schema

Groups = list[dict[str, Any]]


def build(config: schema.Optimizer, model: nn.Module) -> Optimizer:
    """The optimizer `config` asks for, over the parameters of `model` that are trained.

    Call it when the parameters have their storage and are tied and sharded. A registered one is
    called as `factory(groups, lr=…, **args)`, as any class of torch.optim; its state should exist
    from the start, in tensors, so that it can be saved before the first step.
    Raises ConfigError for an unknown name.
    """
    groups = decay_groups(model, config.weight_decay)
    if isinstance(config, schema.AdamW):
        return _adamw(config, groups)
    factory = cast(Callable[..., Optimizer], registry.lookup("optimizer", config.name))
    with registry.blamed(f"optimizer.name={config.name}"):
        return factory(groups, lr=config.lr, **config.args)


def decay_groups(model: nn.Module, weight_decay: float) -> Groups:
    """Two parameter groups: weights with two or more dimensions decay, vectors and scalars don't.

    So embeddings and the head decay, tied or not; norms and biases do not. This is the rule of
    nanoGPT (`configure_optimizers`), hence of most published settings.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]


def _adamw(config: schema.AdamW, groups: Groups) -> Optimizer:
    """AdamW with its state in place: saving before the first step must not make a step."""
    betas = (config.beta1, config.beta2)
    adamw = torch.optim.AdamW(groups, lr=config.lr, betas=betas, eps=config.eps, fused=True)
    for group in adamw.param_groups:
        for parameter in group["params"]:
            adamw.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
    return adamw
