"""Ring attention for models of the transformers library, none of them changed.

The library looks attention up by name and hands unknown keywords of a model down to it, through
FSDP and recomputation alike. It makes no mask for a name it does not know.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from ringshard.parallel.ring.attention import RingState, ring_attention
from ringshard.parallel.ring.group import Ring, ring_named

NAME = "ring"
"""The value of `attn_implementation`."""

FOREIGN = ("sliding_window", "softcap", "s_aux", "position_bias", "head_mask", "chunk_size")
"""Keywords by which a model asks for something that this attention does not do."""

SCALED_BY_LENGTH = ("dynamic", "longrope")
"""Rotary embeddings whose frequencies follow from the longest position of a batch."""


def register() -> None:
    """Makes "ring" a name the library knows."""
    AttentionInterface.register(NAME, attention_forward)


def attend_by_ring(model: PreTrainedModel, length: int) -> None:
    """Makes ring attention that of a model, for sequences of `length` tokens.

    Its calls then take ring= and position_ids= beside the tokens.
    """
    register()
    model.config._attn_implementation = NAME
    fix_longest_position(model, length)


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    ring: RingState | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """What the library calls in each layer: query (B, Hq, S, D), key and value (B, Hkv, S, D), S
    the rank's own tokens; returns (B, S, Hq, D).

    Raises RuntimeError for whatever would change the result and is not done here.
    """
    if ring is None:
        raise RuntimeError(
            f"{type(module).__name__} was not given ring=: the model was called without it, or "
            "keeps keywords from its layers; use attention=sdpa for such a model"
        )
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    _refuse(module, attention_mask, dropout, causal, others)
    if key.shape[2] != query.shape[2]:
        raise RuntimeError(
            f"{key.shape[2]} keys for {query.shape[2]} queries: ring attention knows no cache of "
            "keys; set use_cache=false"
        )
    if not torch.compiler.is_compiling():
        ring_named(ring.ring).layers[getattr(module, "layer_idx", None)] += 1
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = ring_attention(query, key, value, ring, scale)
    return out.transpose(1, 2), None  # (B, S, Hq, Dv)


def _refuse(
    module: nn.Module, mask: Tensor | None, dropout: float, causal: bool, others: dict[str, Any]
) -> None:
    name = type(module).__name__
    if mask is not None:
        raise RuntimeError(
            f"{name} was given an attention mask, which ring attention would ignore: give "
            "documents as bounds, and make padding a document"
        )
    if dropout:
        raise RuntimeError(f"{name} drops attention weights with probability {dropout}: set it 0")
    if not causal:
        raise RuntimeError(f"{name} attends to later tokens: ring attention is causal")
    for keyword in FOREIGN:
        if others.get(keyword) is not None:
            raise RuntimeError(f"{name} asks for {keyword}, which ring attention does not do")


@contextmanager
def watched(ring: Ring, layers: int) -> Iterator[None]:
    """Around the first forward pass: raises RuntimeError unless each of `layers` layers attended
    once.

    A model that never asks the library for attention would train on a rank's own tokens alone,
    silently. Layers of compiled blocks are counted but not told apart.
    """
    ring.calls = 0
    ring.layers.clear()
    yield
    repeated = [layer for layer, calls in ring.layers.items() if calls > 1]
    missing = sorted(set(range(layers)) - set(ring.layers)) if ring.layers else []
    if ring.calls != layers or missing or repeated:
        raise RuntimeError(
            f"ring attention was called {ring.calls} times in a forward pass of {layers} layers "
            f"(layers without it: {missing or 'unknown'}): this model computes attention another "
            "way, of a rank's own tokens only; use attention=sdpa without context parallelism"
        )


def fix_longest_position(model: PreTrainedModel, length: int) -> None:
    """Makes dynamic and longrope frequencies those of sequences of `length` tokens, whatever tokens
    a rank holds.

    The library takes the longest position it sees, which is another on each rank and in each batch.
    """
    for module in model.modules():
        if getattr(module, "rope_type", None) in SCALED_BY_LENGTH:
            module.register_forward_pre_hook(_with_last_position(length), with_kwargs=True)
            module.register_forward_hook(_without_last_position)


def _with_last_position(length: int) -> Any:
    def append(
        _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        positions = kwargs["position_ids"] if "position_ids" in kwargs else args[1]
        last = positions.new_full((*positions.shape[:-1], 1), length - 1)
        positions = torch.cat([positions, last], dim=-1)  # (B, S + 1)
        if "position_ids" in kwargs:
            return args, kwargs | {"position_ids": positions}
        return (args[0], positions, *args[2:]), kwargs

    return append


def _without_last_position(_: nn.Module, args: Any, output: tuple[Tensor, ...]) -> Any:
    """cos and sin (B, S + 1, D) → (B, S, D)."""
    return tuple(part[:, :-1] for part in output)
