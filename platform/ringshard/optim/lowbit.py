"""AdamW with moments of few bits, by torchao."""

import warnings
from importlib import import_module
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from ringshard.config.schema import optimizer as schema
from ringshard.errors import ConfigError

NAMES: dict[type[schema.Optimizer], str] = {
    schema.AdamW8bit: "AdamW8bit",
    schema.AdamW4bit: "AdamW4bit",
}


def adamw(config: schema.AdamW8bit | schema.AdamW4bit, groups: list[dict[str, Any]]) -> Optimizer:
    """torchao's optimizer; raises ConfigError where torchao is missing, or on several processes."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        raise ConfigError(
            f"optimizer={config.name} keeps state by the size of a shard, so that a checkpoint "
            "would fit no other number of processes: use one, or optimizer=lion8bit"
        )
    try:
        with warnings.catch_warnings(action="ignore"):
            made = getattr(import_module("torchao.optim"), NAMES[type(config)])
    except ImportError as error:
        raise ConfigError(
            f"optimizer={config.name} needs torchao ({error}): pip install 'ringshard[lowbit]'"
        ) from error
    betas = (config.beta1, config.beta2)
    optimizer = made(groups, lr=config.lr, betas=betas, eps=config.eps)
    for group in optimizer.param_groups:
        for parameter in group["params"]:  # as its own first step would
            optimizer.state[parameter] = {
                "step": torch.tensor(0.0),
                "exp_avg": optimizer._new_buffer(parameter, True),
                "exp_avg_sq": optimizer._new_buffer(parameter, False),
            }
    return cast(Optimizer, optimizer)
