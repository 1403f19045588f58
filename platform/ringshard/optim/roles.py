"""What each parameter is to the model, which decides how it is updated."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ringshard.errors import ConfigError
from ringshard.model.names import canonical

ROLES = ("matrix", "experts", "embedding", "head", "vector", "other")
DIMENSIONS = {"matrix": 2, "experts": 3}


@dataclass(frozen=True, eq=False)
class Parameter:
    """A trained parameter with what is known of it."""

    name: str
    tensor: Tensor
    role: str
    transposed: bool
    """Whether it is stored (in, out), as the weights of GPT-2's Conv1D and of some experts."""


def parameters(model: nn.Module, overrides: Mapping[str, str] | None = None) -> list[Parameter]:
    """The trained parameters of `model`, a tied one once, with their roles.

    An embedding is what an nn.Embedding owns, tied to the head or not; the head is the output
    projection; matrix is any other weight with two dimensions, experts one with three in a module
    called so, vector one with fewer than two. overrides: role -> regular expression of names.
    Raises ConfigError for one that matches nothing, or gives a role that the shape can't have.
    """
    head = _head(model)
    found: list[Parameter] = []
    for path, module in model.named_modules():
        for key, tensor in module.named_parameters(path, recurse=False):
            if tensor.requires_grad and all(tensor is not other.tensor for other in found):
                name = canonical(key)
                role = _role(module, name, tensor, is_head=module is head)
                found.append(Parameter(name, tensor, role, _is_transposed(module)))
    return _overridden(found, overrides or {})


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


def _is_transposed(module: nn.Module) -> bool:
    """transformers' Conv1D is (in, out); its experts say which they are."""
    return type(module).__name__ == "Conv1D" or bool(getattr(module, "is_transposed", False))


def _overridden(found: list[Parameter], overrides: Mapping[str, str]) -> list[Parameter]:
    for role, pattern in overrides.items():
        if not any(re.search(pattern, parameter.name) for parameter in found):
            raise ConfigError(
                f"optimizer.roles.{role}={pattern} matches no parameter: names are such as "
                f"{found[0].name if found else 'none'}"
            )
    return [_given(parameter, overrides) for parameter in found]


def _given(parameter: Parameter, overrides: Mapping[str, str]) -> Parameter:
    name, dimensions = parameter.name, parameter.tensor.dim()
    for role, pattern in overrides.items():
        if not re.search(pattern, name):
            continue
        if dimensions != DIMENSIONS.get(role, dimensions):
            raise ConfigError(
                f"optimizer.roles.{role}={pattern} matches {name}, which has {dimensions} "
                f"dimensions instead of {DIMENSIONS[role]}: narrow the expression"
            )
        if role in DIMENSIONS and parameter.role in ("embedding", "head"):
            raise ConfigError(
                f"optimizer.roles.{role}={pattern} matches {name}, and the {parameter.role} is no "
                "hidden matrix: narrow the expression"
            )
        return Parameter(name, parameter.tensor, role, parameter.transposed)
    return parameter


def table(rows: list[tuple[str, Parameter]]) -> list[str]:
    """Who gets what, a line for each kind of parameter; rows: (update rule, parameter)."""
    kinds: dict[tuple[str, ...], list[int]] = {}
    for rule, parameter in rows:
        kind = re.sub(r"\d+", "*", parameter.name)
        shape = " × ".join(map(str, parameter.tensor.shape)) or "1"
        kinds.setdefault((rule, parameter.role, kind, shape), []).append(parameter.tensor.numel())
    cells: list[tuple[str, ...]] = [("rule", "role", "parameters", "shape", "number")]
    cells += [(*kind, f"{len(sizes)}") for kind, sizes in kinds.items()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
