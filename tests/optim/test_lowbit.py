"""torchao's AdamW with moments of few bits: in the trainer's step, and through a checkpoint."""

from pathlib import Path

import pytest
import torch
from ranks import run_ranks
from torch import Tensor, nn

from ringshard.checkpoint.load import load
from ringshard.checkpoint.save import Place, save
from ringshard.checkpoint.state import TrainState
from ringshard.config.schema.optimizer import AdamW, AdamW4bit, AdamW8bit, Optimizer
from ringshard.errors import ConfigError
from ringshard.optim import build
from ringshard.train.step import clip_gradients, update


def trained(config: Optimizer, steps: int, path: Path | None = None) -> tuple[nn.Module, object]:
    torch.manual_seed(0)
    net = nn.Linear(64, 128)
    optimizer = build(config, net)
    if path is not None:
        load(path, net, optimizer, None)
    for _ in range(steps):
        net(torch.linspace(-1, 1, 64)).square().mean().backward()
        update(optimizer, 1e-2, clip_gradients(net, 1.0))
    return net, optimizer


def drift_and_resumed(config: Optimizer, folder: Path) -> tuple[float, Tensor, Tensor]:
    """How far 3 steps of few bits lie from those of many; the weight after 3 steps, a checkpoint
    and 2 more, and after 5 at once."""
    net, optimizer = trained(config, 3)
    reference, _ = trained(AdamW(), 3)
    start = trained(AdamW(), 0)[0].weight
    drift = (net.weight - reference.weight).norm() / (reference.weight - start).norm()
    path = save(Place(folder), TrainState(3, 0, 0), net, optimizer, None)
    resumed, _ = trained(config, 2, path)
    whole, _ = trained(config, 5)
    return drift.item(), resumed.weight.detach(), whole.weight.detach()


@pytest.mark.compile
@pytest.mark.parametrize("config", [AdamW8bit(), AdamW4bit()], ids=lambda c: c.name)
def test_few_bits_train_otherwise_than_many_or_do_not_survive_a_checkpoint(
    config: Optimizer, tmp_path: Path
) -> None:
    pytest.importorskip("torchao")
    [(drift, resumed, whole)] = run_ranks(1, drift_and_resumed, config, tmp_path)
    assert drift < (0.1 if config.name == "adamw8bit" else 0.4)
    assert torch.equal(resumed, whole)


def test_several_processes_keep_state_by_the_size_of_a_shard() -> None:
    def refusal() -> str:
        with pytest.raises(ConfigError) as error:
            build(AdamW8bit(), nn.Linear(64, 128))
        return str(error.value)

    for said in run_ranks(2, refusal):
        assert "would fit no other number of processes: use one, or optimizer=lion8bit" in said


def test_a_missing_torchao_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torchao.optim", None)
    with pytest.raises(ConfigError, match=r"needs torchao .*pip install 'ringshard\[lowbit\]'"):
        build(AdamW8bit(), nn.Linear(2, 2))
