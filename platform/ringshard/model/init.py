"""Initial parameters that depend on (model config, seed, parameter name) alone, never on who draws
them.

The library's own rules are kept: its initialisation runs once on the meta model under a recorder,
which notes
the distribution of each parameter. Values are then drawn in blocks of rows, each with a generator
of its own, so that a rank draws only the blocks that touch its rows.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from ringshard.errors import ConfigError
from ringshard.model.names import canonical

# Part of the definition of an initial parameter: another size draws other numbers.
ROWS_PER_BLOCK = 256


@dataclass(frozen=True)
class Rule:
    """How a parameter is drawn: an in-place torch method (normal_, uniform_, fill_, zero_) and its
    arguments."""

    method: str
    args: tuple[Any, ...]


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the last in-place initialisation of each tensor."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rules: dict[int, Rule] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        method = func._schema.name.removeprefix("aten::")
        if method.endswith("_") and isinstance(args[0], Tensor):
            self.rules[id(args[0])] = Rule(method, tuple(args[1:]))
        return func(*args, **(kwargs or {}))


def record_rules(model: PreTrainedModel) -> dict[str, Rule]:
    """The initialisation rule of each parameter of a model on the meta device, by canonical
    name."""
    _forget_initialised(model)
    with _Recorder() as recorder, torch.no_grad():
        model.initialize_weights()
    rules = {}
    for name, parameter in model.named_parameters():
        rule = recorder.rules.get(id(parameter))
        if rule is None or rule.method not in ("normal_", "uniform_", "fill_", "zero_"):
            raise ConfigError(
                f"model.type={model.config.model_type} initialises {name} in a way that can't be "
                f"drawn shard by shard ({rule.method if rule else 'not at all'}): "
                "start from model.pretrained"
            )
        rules[canonical(name)] = rule
    return rules


def _forget_initialised(model: PreTrainedModel) -> None:
    """The library marks what it has initialised and skips it; on meta nothing has been."""
    for item in (*model.modules(), *model.parameters(), *model.buffers()):
        vars(item).pop("_is_hf_initialized", None)


@torch.no_grad()
def draw_parameters(model: nn.Module, rules: dict[str, Rule], seed: int) -> None:
    """Fills every parameter, sharded or not, as `rules` say."""
    for name, parameter in model.named_parameters():
        shape, offset = local_slice(parameter)
        values = draw(
            rules[canonical(name)], f"{seed}:{canonical(name)}", parameter.shape, shape, offset
        )
        local(parameter).copy_(values)


def restore_buffers(model: PreTrainedModel) -> None:
    """Computes buffers anew: `to_empty` leaves garbage in those that no checkpoint holds (rotary
    frequencies)."""
    _forget_initialised(model)
    for module in model.modules():
        if next(module.buffers(recurse=False), None) is not None:
            model._init_weights(module)


def local(parameter: Tensor) -> Tensor:
    """The part of a parameter that this rank holds."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def local_slice(parameter: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and global offset of the part of a parameter that this rank holds."""
    if isinstance(parameter, DTensor):
        return compute_local_shape_and_global_offset(
            parameter.shape, parameter.device_mesh, parameter.placements
        )
    return tuple(parameter.shape), (0,) * parameter.dim()


def draw(
    rule: Rule, key: str, shape: torch.Size, part: tuple[int, ...], offset: tuple[int, ...]
) -> Tensor:
    """The part of size `part` at `offset` of the parameter of size `shape` named `key`, fp32 on the
    CPU."""
    if 0 in part:
        return torch.empty(part)
    first, last = offset[0], offset[0] + part[0]
    blocks = range(first // ROWS_PER_BLOCK, -(-last // ROWS_PER_BLOCK))
    rows = torch.cat([_draw_block(rule, key, shape, block) for block in blocks])
    start = first - blocks[0] * ROWS_PER_BLOCK
    columns = tuple(slice(o, o + n) for o, n in zip(offset[1:], part[1:], strict=True))
    return rows[(slice(start, start + part[0]), *columns)]


def _draw_block(rule: Rule, key: str, shape: torch.Size, block: int) -> Tensor:
    rows = min(ROWS_PER_BLOCK, shape[0] - block * ROWS_PER_BLOCK)
    values = torch.empty((rows, *shape[1:]))
    fill = getattr(values, rule.method)
    if rule.method in ("fill_", "zero_"):
        fill(*rule.args)
        return values
    generator = torch.Generator().manual_seed(hashed_seed(key, block))
    fill(*rule.args, generator=generator)
    return values


def hashed_seed(*key: object) -> int:
    """A seed [0, 2^63) that depends on all of `key`, and on nothing else."""
    digest = hashlib.sha256(":".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
