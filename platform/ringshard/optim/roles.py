"""What each parameter is to the model, which decides how it is updated."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ringshard.config.roles import overridden
from ringshard.config.schema.description import Weight
from ringshard.model.names import canonical

_FUSED = re.compile(
    r"\.(c_attn|qkv_proj|Wqkv|W_pack|qkv|qkv_linear|query_key_value|in_proj_qkv\w*)\."
)
"""Weights that make queries, keys and values at once."""
_IN_ORDER = re.compile(r"\.(c_attn|qkv_proj|Wqkv|W_pack)\.")
"""Those of which all queries come first, then all keys, then all values."""
_GATE_UP = re.compile(r"\.gate_up_proj(\.|$)")
"""The gate, then what it gates, each half of the outputs."""


@dataclass(frozen=True, eq=False)
class Parameter:
    """A trained parameter with what is known of it."""

    weight: Weight
    tensor: Tensor

    @property
    def name(self) -> str:
        """As the model's author wrote it."""
        return self.weight.name

    @property
    def role(self) -> str:
        """One of ringshard.config.roles.ROLES."""
        return self.weight.role


def parameters(model: nn.Module, overrides: Mapping[str, str] | None = None) -> list[Parameter]:
    """The trained parameters of `model`, a tied one once, with their roles.

    An embedding is what an nn.Embedding owns, tied to the head or not; the head is the output
    projection; matrix is any other weight with two dimensions, experts one with three in a module
    called so, vector one with fewer than two. overrides: see ringshard.config.roles.
    """
    head = _head(model)
    found: list[Parameter] = []
    for path, module in model.named_modules():
        for key, tensor in module.named_parameters(path, recurse=False):
            if tensor.requires_grad and all(tensor is not other.tensor for other in found):
                role = _role(module, canonical(key), tensor, is_head=module is head)
                weight = _weight(canonical(key), module, tensor, role, model)
                found.append(Parameter(weight, tensor))
    weights = overridden([parameter.weight for parameter in found], overrides or {})
    return [Parameter(w, p.tensor) for w, p in zip(weights, found, strict=True)]


def _head(model: nn.Module) -> nn.Module | None:
    get: Any = getattr(model, "get_output_embeddings", None)
    head: nn.Module | None = get() if get else None
    return head


def _role(module: nn.Module, name: str, tensor: Tensor, is_head: bool) -> str:
    if tensor.dim() < 2:
        return "vector"
    if isinstance(module, nn.Embedding):
        return "embedding"
    if is_head:
        return "head"
    if tensor.dim() == 2:
        return "matrix"
    return "experts" if tensor.dim() == 3 and "expert" in name else "other"


def _weight(name: str, module: nn.Module, tensor: Tensor, role: str, model: nn.Module) -> Weight:
    """With the outputs of the matrices that it fuses, where their order is known."""
    # transformers' Conv1D is (in, out); its experts say which they are.
    named = type(module).__name__ == "Conv1D"
    transposed = named or bool(getattr(module, "is_transposed", False))
    weight = Weight(name, list(tensor.shape), role, transposed)
    if tensor.dim() < 2:
        return weight
    outputs = tensor.shape[-1 if transposed else -2]
    if _FUSED.search(name):
        known = _query_key_value(getattr(model, "config", None)) if _IN_ORDER.search(name) else []
        sizes = known if sum(known) == outputs else []
        return Weight(name, list(tensor.shape), role, transposed, fused=True, sizes=sizes)
    if _GATE_UP.search(name) and not (tensor.dim() == 3 and transposed):  # those interleave
        halves = [outputs // 2] * 2
        return Weight(name, list(tensor.shape), role, transposed, fused=True, sizes=halves)
    return weight


def _query_key_value(config: Any) -> list[int]:
    """Outputs of each; empty where they are known to be mixed head by head (gpt_bigcode)."""
    multi_query: bool | None = getattr(config, "multi_query", None)
    if config is None or multi_query is False:
        return []
    heads: int = config.num_attention_heads
    head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads: int = getattr(config, "num_key_value_heads", None) or (1 if multi_query else heads)
    return [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]


def table(rows: Sequence[tuple[str, Parameter]]) -> list[str]:
    """Who gets what, a line for each kind of parameter; rows: (update rule, parameter)."""
    kinds: dict[tuple[str, ...], int] = {}
    for rule, parameter in rows:
        shape = " × ".join(map(str, parameter.tensor.shape)) or "1"
        kind = rule, parameter.role, re.sub(r"\d+", "*", parameter.name), shape
        kinds[kind] = kinds.get(kind, 0) + 1
    cells: list[tuple[str, ...]] = [("rule", "role", "parameters", "shape", "number")]
    cells += [(*kind, f"{number}") for kind, number in kinds.items()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
