"""Which matrices a parameter holds: one, several fused along their outputs, or a stack of experts.

Orthogonalizing a fused matrix as a whole would mix its parts, and shape rules want to know outputs
from inputs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from torch import Tensor, nn

from ringshard.errors import ConfigError
from ringshard.optim.roles import Parameter

_FUSED = re.compile(
    r"\.(c_attn|qkv_proj|Wqkv|W_pack|qkv|qkv_linear|query_key_value|in_proj_qkv\w*)\."
)
"""Weights that make queries, keys and values at once."""
_IN_ORDER = re.compile(r"\.(c_attn|qkv_proj|Wqkv|W_pack)\.")
"""Those of which all queries come first, then all keys, then all values."""
_GATE_UP = re.compile(r"\.gate_up_proj(\.|$)")
"""The gate, then what it gates, each half of the outputs."""


@dataclass(frozen=True)
class Layout:
    """The matrices of one parameter."""

    shape: tuple[int, ...]
    """(out, in) or (experts, out, in); with `transposed`, (in, out) or (experts, in, out)."""
    transposed: bool = False
    """Whether inputs come before outputs."""
    sizes: tuple[int, ...] = ()
    """Outputs of each of several fused matrices; empty: they are one."""

    @property
    def is_stack(self) -> bool:
        """Whether the first dim counts matrices, so that a shard of it holds whole ones."""
        return len(self.shape) == 3

    @property
    def outputs(self) -> int:
        """Outputs of all fused matrices together."""
        return self.shape[-1] if self.transposed else self.shape[-2]

    @property
    def inputs(self) -> int:
        """Inputs of each matrix."""
        return self.shape[-2] if self.transposed else self.shape[-1]

    @property
    def matrices(self) -> list[tuple[int, int]]:
        """(out, in) of each matrix."""
        fused = [(size, self.inputs) for size in self.sizes or (self.outputs,)]
        return fused * (self.shape[0] if self.is_stack else 1)

    def blocks(self, part: Tensor, offset: int = 0) -> list[Tensor]:
        """Views of what lies of each matrix in `part`, the rows of the parameter from `offset` on,
        as (out, in); empty where nothing does."""
        if not self.is_stack:
            return self._fused(part, offset)
        found = []
        for expert in range(self.shape[0]):
            inside = offset <= expert < offset + len(part)
            one = part[expert - offset] if inside else part.new_empty(0, *self.shape[2:])
            found += self._fused(one, 0)
        return found

    def _fused(self, part: Tensor, offset: int) -> list[Tensor]:
        """part (rows, columns): of one matrix, or of several fused ones."""
        ends = list(accumulate(self.sizes or (self.outputs,)))
        starts = [0, *ends[:-1]]
        if self.transposed:
            return [part[:, a:b].T for a, b in zip(starts, ends, strict=True)]
        last = len(part)
        return [
            part[min(max(a - offset, 0), last) : min(max(b - offset, 0), last)]
            for a, b in zip(starts, ends, strict=True)
        ]


def layouts(
    found: Sequence[Parameter], model: nn.Module, splits: Mapping[str, Sequence[int]] | None = None
) -> dict[str, Layout]:
    """The layout of each matrix and stack of experts in `found`, by name.

    splits: regular expression of names -> outputs of each fused matrix. Raises ConfigError for one
    that matches nothing or does not add up, and for fused queries, keys and values of unknown
    order.
    """
    splits = splits or {}
    for pattern in splits:
        if not any(re.search(pattern, parameter.name) for parameter in found):
            raise ConfigError(
                f"optimizer.splits.{pattern} matches no matrix: names are such as "
                f"{found[0].name if found else 'none'}"
            )
    return {parameter.name: _layout(parameter, model, splits) for parameter in found}


def _layout(parameter: Parameter, model: nn.Module, splits: Mapping[str, Sequence[int]]) -> Layout:
    whole = Layout(tuple(parameter.tensor.shape), parameter.transposed)
    sizes = next((s for p, s in splits.items() if re.search(p, parameter.name)), None)
    if sizes is None:
        sizes = _known(parameter, whole, getattr(model, "config", None))
    if sizes and sum(sizes) != whole.outputs:
        raise ConfigError(
            f"optimizer.splits: {list(sizes)} of {parameter.name} add up to {sum(sizes)}, and it "
            f"has {whole.outputs} outputs"
        )
    return Layout(whole.shape, whole.transposed, tuple(sizes))


def _known(parameter: Parameter, whole: Layout, config: Any) -> Sequence[int]:
    name = parameter.name
    if _FUSED.search(name):
        sizes = _query_key_value(config) if _IN_ORDER.search(name) else []
        if sum(sizes) != whole.outputs:
            raise ConfigError(
                f"{name} fuses queries, keys and values in an order that is not known: give "
                f"optimizer.splits={{{name.split('.')[-2]}: [SIZE, …]}} for its {whole.outputs} "
                f"outputs, or optimizer.roles.other={name.split('.')[-2]}"
            )
        return sizes
    # Transposed experts interleave the two.
    halves = _GATE_UP.search(name) and not (whole.is_stack and whole.transposed)
    return [whole.outputs // 2] * 2 if halves else []


def _query_key_value(config: Any) -> list[int]:
    """Outputs of each; empty where they are known to be mixed head by head (gpt_bigcode)."""
    multi_query: bool | None = getattr(config, "multi_query", None)
    if config is None or multi_query is False:
        return []
    heads: int = config.num_attention_heads
    head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads: int = getattr(config, "num_key_value_heads", None) or (1 if multi_query else heads)
    return [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
