"""Small parameters with known gradients: the same ones whole or cut over ranks."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from ringshard.config.schema.optimizer import Optimizer
from ringshard.optim import build
from ringshard.optim.ruled import Ruled

SHAPES = {"wide": (18, 64), "short": (3, 18), "row": (1, 64), "tall": (64, 18), "again": (18, 64)}
"""On 4 ranks: uneven shards, one rank without any, three without any."""
EXPERTS = (6, 16, 8)


class Matrices(nn.Module):
    """Matrices, experts, an embedding, a vector."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)

        def drawn(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=generator).mul_(0.1).to(dtype))

        for name, shape in SHAPES.items():
            self.register_parameter(name, drawn(*shape))
        self.experts = drawn(*EXPERTS)
        self.fused = nn.Module()
        self.fused.weight = drawn(24, 10)
        self.embedding = nn.Embedding(11, 8)
        self.embedding.weight = drawn(11, 8)
        self.vector = drawn(7)

    def cut(self, replicas: int = 1) -> "Matrices":
        """Cuts every parameter over the ranks, as FSDP does."""
        world = torch.distributed.get_world_size()
        mesh = init_device_mesh(
            "cpu", (replicas, world // replicas), mesh_dim_names=("replicate", "shard")
        )
        for module in self.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                cut = distribute_tensor(parameter.data, mesh, [Replicate(), Shard(0)])
                module.register_parameter(name, nn.Parameter(cut))
        return self

    def give_gradients(self, step: int, without: Iterable[str] = ()) -> None:
        """The gradients of a step: the same ones however the parameters are cut."""
        for index, (name, parameter) in enumerate(self.named_parameters()):
            generator = torch.Generator().manual_seed(1000 * step + index)
            whole = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
            parameter.grad = None if name in without else _as(parameter, whole)


def _as(parameter: Tensor, whole: Tensor) -> Tensor:
    if not isinstance(parameter, DTensor):
        return whole
    mesh, placements = parameter.device_mesh, parameter.placements
    return distribute_tensor(whole, mesh, placements, src_data_rank=None)


def full(tensor: Tensor) -> Tensor:
    """A tensor put together."""
    tensor = tensor.detach()
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).clone()


def everything(net: nn.Module, optimizer: Ruled) -> dict[str, Tensor]:
    """Parameters and state, whole, by name."""
    found = {name: full(parameter) for name, parameter in net.named_parameters()}
    for slots in optimizer.slots:
        for slot in slots:
            found |= {f"{slot.name}.{key}": full(value) for key, value in slot.state.items()}
    return found


def steps(net: Matrices, config: Optimizer, count: int = 10, lr: float = 0.02) -> Ruled:
    """The optimizer after some steps at a rate that changes."""
    optimizer = build(config, net)
    assert isinstance(optimizer, Ruled)
    for step in range(count):
        net.give_gradients(step)
        for group in optimizer.param_groups:
            group["lr"] = lr / (1 + step)
        optimizer.step()
    return optimizer


def trained(config: Optimizer, count: int = 10) -> dict[str, Tensor]:
    """Everything after some steps of whole parameters."""
    net = Matrices()
    return everything(net, steps(net, config, count))


def trained_in_parts(config: Optimizer, replicas: int, count: int = 10) -> dict[str, Tensor]:
    """The same, cut over the ranks; call it on each."""
    net = Matrices().cut(replicas)
    return everything(net, steps(net, config, count))
