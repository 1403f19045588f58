"""What a step of an optimizer costs: its share of a training step, ranks, bytes.

Muon by owners against gathering everything everywhere, and against torch.optim.Muon on one process.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from ranks import run_ranks
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from ringshard.config.schema import optimizer as schema
from ringshard.config.schema.model import Model
from ringshard.config.schema.optimizer import Coefficients
from ringshard.config.schema.precision import Dtype
from ringshard.model.build import build_on_meta
from ringshard.model.init import draw_parameters, local, record_rules, restore_buffers
from ringshard.optim import build, who_gets_what
from ringshard.optim.newton_schulz import POLYNOMIALS, orthogonalize
from ringshard.optim.ruled import Ruled

ROUNDS = 5
MODEL = Model(
    type="llama",
    config={
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
)
TOKENS = (4, 256)
"""Of a training step on each rank."""
CONFIGS = {
    "adamw": schema.AdamW(),
    "lion8bit": schema.Lion8bit(),
    "muon": schema.Muon(),
    "muon_mona": schema.MuonMona(),
    "muon_hyperball": schema.MuonHyperball(),
}


def run() -> list[dict[str, Any]]:
    """One row per optimizer and number of ranks."""
    rows = []
    for ranks in (1, 2, 4):
        for name in CONFIGS:
            rows.append(_row(name, run_ranks(ranks, _of_ours, name)))
        rows.append(_row("muon, all gathered", run_ranks(ranks, _gathered)))
        if ranks == 1:
            fp = schema.Muon(coefficients=Coefficients.keller, ns_dtype=Dtype.bf16)
            rows.append(_row("muon, keller, bf16", run_ranks(1, _of_ours, "muon", fp)))
            rows.append(_row("torch.optim.Muon", run_ranks(1, _torchs)))
    return rows


def _row(name: str, ranks: list[dict[str, float]]) -> dict[str, Any]:
    busiest = {key: max(rank[key] for rank in ranks) for key in ranks[0]}
    share = busiest["step"] / (busiest["step"] + busiest["pass"])
    mean = sum(rank["received"] for rank in ranks) / len(ranks)
    return {
        "optimizer": name,
        "ranks": len(ranks),
        "CPU ms a step, busiest rank": round(1e3 * busiest["step"], 1),
        "share of the training step": f"{share:.0%}",
        "received a rank [MB]": round(mean / 1e6, 3),
        "over 2 M b (N-1) / N²": round(mean / busiest["least"], 3) if busiest["least"] else "-",
    }


def _network(ranks: int) -> nn.Module:
    model = build_on_meta(MODEL, 512)
    rules = record_rules(model)
    if ranks > 1:
        mesh = init_device_mesh("cpu", (ranks,))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    model.tie_weights()
    restore_buffers(model)
    draw_parameters(model, rules, 1)
    return model


def _measured(model: nn.Module, step: Callable[[], None]) -> dict[str, float]:
    """CPU seconds of the step and of the forward and backward pass, and bytes of the step."""
    torch.manual_seed(dist.get_rank())
    tokens = torch.randint(512, TOKENS)
    seconds: dict[str, list[float]] = {"pass": [], "step": []}
    received = [0]
    with _counted(received):
        for _ in range(1 + ROUNDS):
            started = time.process_time()
            loss, *_ = model(input_ids=tokens, targets=tokens)
            (loss / tokens.numel()).backward()
            between, received[0] = time.process_time(), 0
            step()
            seconds["pass"].append(between - started)
            seconds["step"].append(time.process_time() - between)
            model.zero_grad(set_to_none=True)
    world = dist.get_world_size()
    numbers = sum(p.numel() for p in _hidden(model))
    return {key: min(values[1:]) for key, values in seconds.items()} | {
        "received": received[0],
        "least": 2 * numbers * 4 * (world - 1) / world**2,
    }


class _counted:  # noqa: N801  (a context manager)
    """Adds up what the collectives of optimizers bring from other ranks [bytes]."""

    def __init__(self, total: list[int]) -> None:
        self.total, self.before = total, (dist.all_to_all_single, DTensor.full_tensor)

    def __enter__(self) -> None:
        exchange, gather = self.before

        @functools.wraps(exchange)
        def counted(output: Tensor, *args: Any, **kwargs: Any) -> Any:
            splits = kwargs["output_split_sizes"]
            self.total[0] += output.element_size() * (sum(splits) - splits[dist.get_rank()])
            return exchange(output, *args, **kwargs)

        def gathered(tensor: DTensor) -> Tensor:
            others = tensor.numel() - local(tensor).numel()
            self.total[0] += tensor.element_size() * others
            return gather(tensor)

        dist.all_to_all_single, DTensor.full_tensor = counted, gathered  # type: ignore[assignment]

    def __exit__(self, *_: object) -> None:
        dist.all_to_all_single, DTensor.full_tensor = self.before


def _hidden(model: nn.Module) -> list[nn.Parameter]:
    return [p for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name]


def _of_ours(name: str, config: schema.Optimizer | None = None) -> dict[str, float]:
    model, config = _network(dist.get_world_size()), config or CONFIGS[name]
    optimizer = build(config, model)
    assert isinstance(optimizer, Ruled) and who_gets_what(optimizer, model, config)
    return _measured(model, optimizer.step)


def _gathered() -> dict[str, float]:
    """Every rank gathers every momentum and orthogonalizes it; AdamW for the rest."""
    model = _network(dist.get_world_size())
    hidden = _hidden(model)
    momenta = [torch.zeros_like(p) for p in hidden]
    rest = [p for p in model.parameters() if all(p is not h for h in hidden)]
    adamw = torch.optim.AdamW(rest, fused=True)
    polynomials = POLYNOMIALS[Coefficients.polar_express]

    @torch.no_grad()
    def step() -> None:
        for parameter, momentum in zip(hidden, momenta, strict=True):
            assert parameter.grad is not None
            momentum.lerp_(parameter.grad, 0.05)
            update = parameter.grad.lerp(momentum, 0.95)
            whole = update.full_tensor() if isinstance(update, DTensor) else update
            result = orthogonalize(whole[None], polynomials, torch.float32)[0]
            if isinstance(parameter, DTensor):
                mesh, placements = parameter.device_mesh, parameter.placements
                result = distribute_tensor(result, mesh, placements, src_data_rank=None)
            parameter.mul_(1 - 1e-4).add_(result, alpha=-1e-3)
        adamw.step()

    return _measured(model, step)


def _torchs() -> dict[str, float]:
    model = _network(1)
    hidden = _hidden(model)
    muon = torch.optim.Muon(hidden)
    rest = [p for p in model.parameters() if all(p is not h for h in hidden)]
    adamw = torch.optim.AdamW(rest, fused=True)

    def step() -> None:
        muon.step()
        adamw.step()

    return _measured(model, step)
