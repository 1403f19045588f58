"""A network awkward to shard: 101 rows, a tied head, parameters smaller than the world."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from ringshard.checkpoint.load import load, restore
from ringshard.checkpoint.save import Place, save
from ringshard.checkpoint.saver import Saver
from ringshard.checkpoint.state import TrainState, tensors
from ringshard.config.schema.checkpoint import Verify
from ringshard.config.schema.optimizer import AdamW
from ringshard.optim import build


class Network(nn.Module):
    """Embedding, two blocks, tied head, a temperature; a buffer that is saved."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(101, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width)) for _ in range(2)
        )
        self.temperature = nn.Parameter(torch.ones(1))
        self.head = nn.Linear(width, 101, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("forwards", torch.zeros(()))

    def forward(self, tokens: Tensor) -> Tensor:
        """Mean cross-entropy of each next token."""
        self.forwards += self.training
        hidden = self.embedding(tokens[:-1])
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return F.cross_entropy(self.head(hidden) * self.temperature, tokens[1:])


class Run:
    """A training run; every rank sees the same tokens."""

    def __init__(self, seed: int = 0, sharded: bool = True, replicas: int = 1) -> None:
        torch.manual_seed(seed)
        self.model = Network()
        if sharded:
            shape = (replicas, dist.get_world_size() // replicas)
            names = ("replicate", "shard")
            mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
            mesh = mesh if replicas > 1 else mesh["shard"]
            for block in self.model.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(self.model, mesh=mesh)
        self.optimizer = build(AdamW(lr=1e-2), self.model)
        self.group = dist.group.WORLD if dist.is_initialized() else None
        self.step = 0

    def train(self, steps: int) -> "Run":
        """Goes on for `steps` steps."""
        for _ in range(steps):
            generator = torch.Generator().manual_seed(self.step)
            self.model(torch.randint(101, (33,), generator=generator)).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
        return self

    def evaluate(self) -> None:
        """A forward pass without a backward one: it leaves FSDP's root unsharded."""
        self.model.eval()
        with torch.no_grad():
            self.model(torch.arange(33))
        self.model.train()

    @property
    def state(self) -> TrainState:
        """Its position."""
        return TrainState(self.step, tokens_seen=32 * self.step, rows_read=self.step)

    def save(self, root: Path, keep: int = 0) -> Path:
        """Saves the run as it is."""
        place = Place(root, keep)
        return save(place, self.state, self.model, self.optimizer, self.group)

    def start_saving(self, saver: Saver) -> None:
        """Saves it beside what follows."""
        saver.start(self.state, self.model, self.optimizer)

    def load(self, path: Path, verify: Verify = Verify.shard) -> "Run":
        """Takes over what was saved."""
        self.step = load(path, self.model, self.optimizer, self.group, verify).step
        return self

    def restore(self, root: Path, verify: Verify = Verify.shard) -> list[str]:
        """Takes over the newest that is intact; returns what was said of others."""
        said: list[str] = []
        state = restore(root, self.model, self.optimizer, self.group, verify, said.append)
        self.step = state.step if state else -1
        return said

    def contents(self) -> dict[str, Any]:
        """Every tensor, whole, by name."""
        found = tensors(self.model, self.optimizer)
        return {name: full(tensor).clone().numpy() for name, tensor in found.items()}


def full(tensor: Tensor) -> Tensor:
    """A tensor put together from its shards."""
    tensor = tensor.detach()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
