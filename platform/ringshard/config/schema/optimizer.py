"""The update rule and its hyperparameters."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Optimizer:
    """What every optimizer has; a registered one takes the rest from `args`."""

    name: str = "???"
    """Which optimizer: adamw, or a name registered by a user module."""
    lr: float = 1e-3
    """Peak learning rate."""
    weight_decay: float = 0.1
    """Decoupled weight decay of parameters with two or more dimensions; norms and biases have
    none."""
    args: dict[str, Any] = field(default_factory=dict)
    """Arguments of an optimizer registered by a user module."""


@dataclass
class AdamW(Optimizer):
    """Loshchilov & Hutter 2019, arXiv:1711.05101."""

    name: str = "adamw"
    """adamw"""
    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.95
    """Decay of the second moment."""
    eps: float = 1e-8
    """Added to the square root of the second moment."""


OPTIMIZERS: dict[str, type[Optimizer]] = {"adamw": AdamW}
