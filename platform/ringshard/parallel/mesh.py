"""Processes as a mesh: which rank reads which rows, and who shares a sequence or a copy of the
model."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh

from ringshard.config.schema.hardware import Device, Hardware
from ringshard.config.schema.parallelism import Parallelism
from ringshard.parallel.ring.group import TIMEOUT, Ring, open_ring


@dataclass(frozen=True)
class Mesh:
    """This rank's place in the job."""

    rank: int
    world_size: int
    device: torch.device
    fsdp: DeviceMesh
    """(dp_shard × cp,), or (dp_replicate, dp_shard × cp) for HSDP: what parameters are sharded
    over."""
    ring: Ring
    """The ranks that share this one's sequences, itself alone if cp = 1."""
    cpu_group: dist.ProcessGroup
    """All ranks, gloo: small numbers that must not wait for the device."""

    @property
    def dp_rank(self) -> int:
        """Which share of the rows this rank reads."""
        return self.rank // self.ring.size

    @property
    def dp_size(self) -> int:
        """Into how many shares the rows are divided."""
        return self.world_size // self.ring.size

    @property
    def is_first(self) -> bool:
        """Whether this rank speaks for the job."""
        return self.rank == 0


def start(hardware: Hardware, parallelism: Parallelism) -> Mesh:
    """Joins the job's process group (RANK, WORLD_SIZE, … from torchrun; alone without them)."""
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = _device(hardware)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    store = HashStore() if world_size == 1 else None
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=TIMEOUT)
    return build(parallelism, device)


def build(parallelism: Parallelism, device: torch.device) -> Mesh:
    """The mesh over the process group that exists."""
    world_size = dist.get_world_size()
    replicate = parallelism.dp_replicate
    rest = world_size // replicate
    cp = parallelism.cp if parallelism.cp > 0 else rest // parallelism.dp_shard
    shard = parallelism.dp_shard if parallelism.dp_shard > 0 else rest // cp
    assert replicate * shard * cp == world_size, f"{replicate} × {shard} × {cp}, not {world_size}"
    fsdp = _fsdp(torch.arange(world_size).view(replicate, shard * cp), device)
    # cp is the innermost axis: the ranks of a ring are neighbours. No mesh over all three axes: it
    # would make a process group of each rank alone on an axis of size 1.
    ring = open_ring(torch.arange(world_size).view(-1, cp).tolist(), device)
    cpu_group = dist.new_group(backend="gloo", timeout=TIMEOUT)
    assert cpu_group is not None
    return Mesh(dist.get_rank(), world_size, device, fsdp, ring, cpu_group)


def _fsdp(ranks: Tensor, device: torch.device) -> DeviceMesh:
    """The mesh of ranks (dp_replicate, dp_shard × cp); groups that torch made for it would wait for
    its own time, not ours."""
    world, names = dist.group.WORLD, ("dp_replicate", "dp_shard_cp")
    assert world is not None
    if len(ranks) == 1:
        return DeviceMesh.from_group(world, device.type, mesh_dim_names=names[1:])
    groups = [_own_group(lines.tolist()) for lines in (ranks.T, ranks)]
    return DeviceMesh.from_group(groups, device.type, ranks, mesh_dim_names=names)


def _own_group(lines: list[list[int]]) -> dist.ProcessGroup:
    """Of the groups of these ranks that which this one is in."""
    groups = [dist.new_group(line, timeout=TIMEOUT) for line in lines]
    (own,) = (group for group in groups if isinstance(group, dist.ProcessGroup))
    return own


def _device(hardware: Hardware) -> torch.device:
    if hardware.device is Device.cpu:
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    return device
