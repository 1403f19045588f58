"""State is there before the first step, goes through a checkpoint bit by bit, and keeps its
format."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from optim.networks import Matrices, everything, full
from ranks import run_ranks
from runs import curve, run_attempt, small_job
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from ringshard.checkpoint.load import latest, load
from ringshard.checkpoint.save import Place, save
from ringshard.checkpoint.state import TrainState
from ringshard.config.schema.optimizer import (
    AdamW,
    AdamWHyperball,
    ByRole,
    Lion8bit,
    Muon,
    MuonMonaHyperball,
)
from ringshard.optim import build, release
from ringshard.optim.ruled import Ruled

RULES: list[ByRole] = [
    Lion8bit(),
    MuonMonaHyperball(),
    AdamWHyperball(),
    AdamW(ema_decay=0.9),
]
FORMATS = {"codes": torch.int8, "scales": torch.float32, "radius": torch.float32}


def advanced(net: Matrices, optimizer: Ruled, steps: Sequence[int]) -> dict[str, Tensor]:
    """Everything after the given steps."""
    for step in steps:
        net.give_gradients(step)
        optimizer.step()
        optimizer.zero_grad()
    return everything(net, optimizer)


def made(config: ByRole, cut: bool = True, initialized: bool = True) -> tuple[Matrices, Ruled]:
    net = Matrices().cut() if cut else Matrices()
    if not initialized:
        for parameter in net.parameters():
            torch.nn.init.zeros_(parameter)
    optimizer = build(config, net, initialized=initialized)
    assert isinstance(optimizer, Ruled)
    return net, optimizer


def saved(config: ByRole, root: Path, steps: int, more: int = 3) -> dict[str, Tensor]:
    """A checkpoint, and what training goes on to."""
    net, optimizer = made(config)
    advanced(net, optimizer, range(steps))
    state = TrainState(steps, tokens_seen=0, rows_read=0)
    save(Place(root), state, net, optimizer, dist.group.WORLD)
    return advanced(net, optimizer, range(steps, steps + more))


def resumed(config: ByRole, path: Path, steps: int, more: int = 3) -> dict[str, Tensor]:
    net, optimizer = made(config, initialized=False)
    load(path, net, optimizer, dist.group.WORLD)
    for slots in optimizer.slots:
        for slot in slots:
            for key, value in slot.state.items():
                assert value.dtype is FORMATS.get(key, torch.float32), key
    return advanced(net, optimizer, range(steps, steps + more))


@pytest.mark.parametrize("config", RULES, ids=lambda c: c.name)
def test_saved_on_4_ranks_training_goes_on_otherwise_on_others(
    config: ByRole, tmp_path: Path
) -> None:
    expected = run_ranks(4, saved, config, tmp_path, 3)[0]
    path = latest(tmp_path)
    assert path is not None
    for world in (1, 2, 3, 4):
        found = run_ranks(world, resumed, config, path, 3)[0]
        for name, tensor in expected.items():
            exact = config.name == "lion8bit" or world == 4
            torch.testing.assert_close(
                found[name],
                tensor,
                rtol=0 if exact else 1e-6,
                atol=0 if exact else 1e-6,
                msg=f"{world} {name}",
            )


@pytest.mark.parametrize(("world", "others"), [(4, (1, 2, 3)), (2, (4,))])
@pytest.mark.parametrize("config", RULES, ids=lambda c: c.name)
def test_a_load_on_other_ranks_changes_bits(
    config: ByRole, world: int, others: tuple[int, ...], tmp_path: Path
) -> None:
    """Before any step is made of them."""
    expected = run_ranks(world, saved, config, tmp_path, 3, 0)[0]
    path = latest(tmp_path)
    assert path is not None
    for other in others:
        for found in run_ranks(other, resumed, config, path, 3, 0):
            assert found.keys() == expected.keys()
            assert all(torch.equal(found[name], expected[name]) for name in expected), other


@pytest.mark.parametrize("config", RULES, ids=lambda c: c.name)
def test_saving_before_the_first_step_changes_training(config: ByRole, tmp_path: Path) -> None:
    def after(saves: bool) -> dict[str, Tensor]:
        if saves:
            return saved(config, tmp_path, 0)
        return advanced(*made(config), range(3))

    plain = run_ranks(2, after, False)[0]
    interrupted = run_ranks(2, after, True)[0]
    path = latest(tmp_path)
    assert path is not None
    again = run_ranks(2, resumed, config, path, 0)[0]
    for name, tensor in plain.items():
        assert torch.equal(interrupted[name], tensor), name
        assert torch.equal(again[name], tensor), name


@pytest.mark.parametrize("config", RULES, ids=lambda c: c.name)
def test_torchs_own_state_dict_makes_a_step_or_changes_formats(config: ByRole) -> None:
    """It makes a step of optimizers without state (pytorch#164929), and its load casts state to the
    format of its parameter (pytorch#43706)."""
    net = Matrices(torch.bfloat16)
    optimizer = build(config, net)
    before = everything(net, optimizer)
    get_optimizer_state_dict(net, optimizer)
    assert all(torch.equal(everything(net, optimizer)[n], t) for n, t in before.items())
    expected = advanced(net, optimizer, range(3))
    stored = get_optimizer_state_dict(net, optimizer)
    other = Matrices(torch.bfloat16)
    taken = build(config, other)
    set_optimizer_state_dict(other, taken, stored)
    found = everything(other, taken)
    for slots in taken.slots:
        for slot in slots:
            for key, value in slot.state.items():
                name = f"{slot.name}.{key}"
                assert value.dtype is FORMATS.get(key, torch.float32), name
                assert torch.equal(found[name], expected[name]), name


def test_hyperparameters_come_from_what_is_loaded() -> None:
    net = Matrices()
    optimizer = build(Lion8bit(lr=1e-3, weight_decay=0.5), net)
    taken = build(Lion8bit(lr=2e-3, weight_decay=0.25), net)
    taken.load_state_dict(optimizer.state_dict())
    assert [group["weight_decay"] for group in taken.param_groups] == [0.25, 0.0]
    assert all(group["lr"] == 2e-3 for group in taken.param_groups)
    with pytest.raises(ValueError, match=r"torch\.int8"):
        state = optimizer.state_dict()
        state["state"][0]["codes"] = state["state"][0]["codes"].float()
        taken.load_state_dict(state)


def test_a_released_run_loses_the_norm_it_clips_by(tmp_path: Path) -> None:
    def norms(path: Path | None) -> dict[str, Tensor]:
        config = AdamW(release_gradients=True)
        net, optimizer = made(config, initialized=path is None)
        releasing = release(config, optimizer, 1e-3)
        assert releasing is not None
        if path is None:
            releasing.begin(1e-3)
            sum((p.square().sum() for p in net.parameters()), torch.zeros(())).backward()
            releasing.finish()
            save(Place(tmp_path), TrainState(1, 0, 0), net, optimizer, dist.group.WORLD)
        else:
            load(path, net, optimizer, dist.group.WORLD)
        return {s.name: full(s.state["squared_norm"]) for g in optimizer.slots for s in g}

    written = run_ranks(1, norms, None)[0]
    assert all(value > 0 for value in written.values())
    assert run_ranks(1, norms, latest(tmp_path))[0] == written


@pytest.mark.rotated(3)
@pytest.mark.parametrize("config", [Lion8bit(lr=1e-3), MuonMonaHyperball()], ids=lambda c: c.name)
def test_a_killed_run_goes_on_otherwise_than_undisturbed(config: ByRole, tmp_path: Path) -> None:
    job = small_job(tmp_path)
    job.optimizer = config
    undisturbed = run_attempt(job, tmp_path / "whole", 1, 2)
    run_attempt(job, tmp_path / "run", 1, 2, die_before=7)
    parameters = run_attempt(job, tmp_path / "run", 2, 2)
    assert curve(tmp_path / "run") == curve(tmp_path / "whole")
    assert all(torch.equal(parameters[name], tensor) for name, tensor in undisturbed.items())


def test_an_average_of_weights_is_another_one_on_other_ranks_or_after_a_resume(
    tmp_path: Path,
) -> None:
    """And evaluating it changes training."""
    plain, job = small_job(tmp_path), small_job(tmp_path)
    job.optimizer = AdamW(lr=3e-3, ema_decay=0.8)
    expected = run_attempt(plain, tmp_path / "plain", 1, 1)
    whole = run_attempt(job, tmp_path / "whole", 1, 1)
    assert all(torch.equal(whole[name], tensor) for name, tensor in expected.items())
    run_attempt(job, tmp_path / "run", 1, 2, stop_before=6)
    run_attempt(job, tmp_path / "run", 2, 4)
    losses, raw = (curve(tmp_path / "whole", f"val/{name}") for name in ("ema_loss", "loss"))
    found = curve(tmp_path / "run", "val/ema_loss")
    assert list(losses) == list(raw) == list(found) == [5, 10, 12]
    assert all(found[step] == pytest.approx(loss, rel=1e-5) for step, loss in losses.items())
    assert all(losses[step] > raw[step] for step in losses)  # it lags, while the loss falls


def test_an_average_of_weights_is_not_their_average() -> None:
    net = Matrices()
    optimizer = build(AdamW(ema_decay=0.9), net)
    expected = net.wide.detach().clone()
    for step in range(4):
        advanced(net, optimizer, [step])
        expected = 0.9 * expected + 0.1 * net.wide.detach()
    weight = net.wide.detach().clone()
    with optimizer.averaged():
        torch.testing.assert_close(net.wide.detach(), expected)
    assert torch.equal(net.wide.detach(), weight)


def test_muon_is_no_optimizer_of_a_job(tmp_path: Path) -> None:
    """Resumed on other ranks, at a rate that follows the batch."""
    job = small_job(tmp_path)
    job.optimizer = Muon(lr=1e-2)
    whole = run_attempt(job, tmp_path / "whole", 1, 1)
    run_attempt(job, tmp_path / "run", 1, 2, stop_before=6)
    found = run_attempt(job, tmp_path / "run", 2, 4)
    for name, tensor in whole.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=2e-5)
    losses = curve(tmp_path / "whole")
    assert losses[12] < 0.95 * losses[1]
