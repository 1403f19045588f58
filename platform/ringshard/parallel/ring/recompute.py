"""Activation checkpointing that keeps the output of attention."""

from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

import ringshard.parallel.ring.attention  # noqa: F401  # defines the operator

KEPT = (torch.ops.ringshard.ring_forward.default,)
"""Operators whose outputs are kept: (out, lse) is small beside what it costs to go round again."""


def keep_attention() -> Any:
    """The `context_fn` of torch.utils.checkpoint (not reentrant): recompute all but attention."""
    return create_selective_checkpoint_contexts(_policy)  # type: ignore[no-untyped-call]


def _policy(_: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    if operator in KEPT:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE
