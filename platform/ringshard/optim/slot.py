"""A parameter as an update rule sees it: what this rank holds of it, its gradient and its state."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from ringshard.model.init import hashed_seed, local, local_slice
from ringshard.optim.rounding import stochastically_rounded


@dataclass(frozen=True, eq=False)
class Slot:
    """One parameter, sharded over its first dim or whole."""

    name: str
    parameter: Tensor
    state: dict[str, Tensor]
    """By key, as it is saved: sharded as the parameter, or plain and the same on all ranks."""
    seed: int
    """Of the random rounding of weights shorter than fp32."""

    @property
    def gradient(self) -> Tensor | None:
        """This rank's part of the gradient, fp32; None where there is none."""
        gradient = self.parameter.grad
        return None if gradient is None else local(gradient).float()

    @property
    def weight(self) -> Tensor:
        """This rank's part of the weights, fp32: the storage itself where it is fp32."""
        return local(self.parameter).float()

    def held(self, key: str) -> Tensor:
        """This rank's part of the state `key`, the storage itself."""
        return local(self.state[key])

    def keep(self, key: str, value: Tensor, ok: Tensor) -> None:
        """Puts `value` in place of the state `key` where `ok` (0-dim bool)."""
        held = self.held(key)
        held.copy_(torch.where(ok, value.to(held.dtype), held))

    def write(self, weight: Tensor, ok: Tensor) -> None:
        """Puts `weight`, fp32, in place of this rank's part where `ok` (0-dim bool).

        Weights in bf16 are rounded at random, with the mean of what is rounded: steps smaller than
        half a unit would have no effect else. Which way depends on seed, name, step and the place
        of an element in the whole parameter alone.
        """
        held = local(self.parameter)
        if held.dtype is torch.bfloat16:
            first = first_row(self.parameter) * math.prod(self.parameter.shape[1:])
            key = hashed_seed(self.seed, self.name)
            weight = stochastically_rounded(weight, key, self.state["step"], first)
        held.copy_(torch.where(ok, weight, held))

    def count(self, ok: Tensor) -> None:
        """One more step where `ok`."""
        self.state["step"].add_(ok)


def first_row(parameter: Tensor) -> int:
    """Where this rank's part of a parameter begins in its first dim."""
    _, offset = local_slice(parameter)
    return offset[0] if offset else 0


def shard_group(parameters: Sequence[Tensor]) -> dist.ProcessGroup | None:
    """The ranks over which all of the parameters are sharded; None: each rank has all of them."""
    groups = {_group(parameter) for parameter in parameters}
    assert len(groups) <= 1, "parameters of one update rule are sharded over different ranks"
    return groups.pop() if groups else None


def _group(parameter: Tensor) -> dist.ProcessGroup | None:
    if not isinstance(parameter, DTensor):
        return None
    mesh, placements = parameter.device_mesh, parameter.placements
    sharded = [dim for dim, placement in enumerate(placements) if not placement.is_replicate()]
    assert all(placements[dim].is_shard(0) for dim in sharded), f"sharded as {placements}"
    if not sharded or all(mesh.size(dim) == 1 for dim in sharded):
        return None
    assert len(sharded) == 1, f"sharded as {placements}"
    return mesh.get_group(sharded[0])


def counter(parameter: Tensor) -> Tensor:
    """Steps done, 0-dim fp32, as torch's own optimizers have it."""
    return torch.zeros((), dtype=torch.float32, device=parameter.device)


def zeros(parameter: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """State of the parameter's shape, sharded as it is."""
    return torch.zeros_like(parameter, dtype=dtype, requires_grad=False)


def laid_out_as(parameter: Tensor, part: Tensor, columns: tuple[int, ...]) -> Tensor:
    """State with the parameter's rows and other columns, of which this rank holds `part`."""
    if not isinstance(parameter, DTensor):
        return part
    shape = torch.Size((*parameter.shape[:-1], *columns))
    stride: Any = torch.empty(shape, device="meta").stride()
    mesh, placements = parameter.device_mesh, parameter.placements
    return DTensor.from_local(part, mesh, placements, run_check=False, shape=shape, stride=stride)
