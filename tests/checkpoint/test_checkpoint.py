"""Saved and loaded: the same numbers on any number of ranks, the same training with or without."""

import os
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import xxhash
from checkpoint.network import Network, Run
from ranks import run_ranks
from torch.distributed.tensor import DTensor

from ringshard.checkpoint.directory import committed
from ringshard.checkpoint.load import latest, load
from ringshard.checkpoint.manifest import Entry, Manifest
from ringshard.checkpoint.save import bytes_written, contents
from ringshard.checkpoint.state import TrainState
from ringshard.config.schema.checkpoint import Checkpoint
from ringshard.errors import ConfigError
from ringshard.train.hooks import Save


def assert_same(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def names(root: Path) -> list[str]:
    return sorted(entry.name for entry in root.iterdir())


def trained_and_saved(root: Path, steps: int = 3, keep: int = 0) -> dict[str, Any]:
    run = Run().train(steps)
    run.save(root, keep)
    return run.contents()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A checkpoint that two ranks wrote after three steps, and what it must hold."""
    root = tmp_path_factory.mktemp("saved")
    contents = run_ranks(2, trained_and_saved, root)[0]
    return root / "step-00000003", contents


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_another_number_of_ranks_loads_the_same_bits(saved: Any, world_size: int) -> None:
    path, contents = saved
    for loaded in run_ranks(world_size, lambda: Run(seed=9).load(path).contents()):
        assert_same(loaded, contents)


def test_torchs_own_load_reads_other_bits(saved: Any) -> None:
    path, expected = saved
    found = {name: torch.zeros(value.shape) for name, value in expected.items()}
    torch.distributed.checkpoint.load(found, checkpoint_id=path, no_dist=True)
    assert_same({name: tensor.numpy() for name, tensor in found.items()}, expected)


def test_a_single_process_without_group_loads_and_saves(saved: Any, tmp_path: Path) -> None:
    path, contents = saved
    run = Run(seed=9, sharded=False).load(path)
    assert_same(run.contents(), contents)
    again = Run(seed=8, sharded=False).load(run.save(tmp_path))
    assert again.step == 3
    assert_same(again.contents(), contents)


def test_replicas_of_shards_save_and_load_the_same_bits(saved: Any, tmp_path: Path) -> None:
    def load_and_save() -> Path:
        return Run(seed=9, replicas=2).load(saved[0]).save(tmp_path)

    path = run_ranks(4, load_and_save)[0]
    assert_same(Run(seed=8, sharded=False).load(path).contents(), saved[1])


def test_replicas_ask_for_the_room_of_several_checkpoints() -> None:
    def room(replicas: int) -> int:
        run = Run(replicas=replicas)
        held = contents(run.model, run.optimizer)
        return sum(bytes_written(t) for t in held.values() if isinstance(t, DTensor))

    assert sum(run_ranks(4, room, 2)) == sum(run_ranks(2, room, 1)) > 0


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_resumed_is_uninterrupted(tmp_path: Path, world_size: int) -> None:
    run_ranks(world_size, trained_and_saved, tmp_path)
    path = latest(tmp_path)
    assert path is not None
    resumed = run_ranks(world_size, lambda: Run(seed=9).load(path).train(3).contents())
    assert_same(resumed[0], run_ranks(world_size, lambda: Run().train(6).contents())[0])


def test_saving_changes_nothing_at_any_step_and_after_evaluation(tmp_path: Path) -> None:
    def interrupted() -> dict[str, Any]:
        run = Run()
        run.save(tmp_path)
        run.train(1).evaluate()
        run.save(tmp_path)
        run.save(tmp_path)
        return run.train(3).contents()

    assert_same(run_ranks(2, interrupted)[0], run_ranks(2, lambda: Run().train(4).contents())[0])


def test_evaluation_before_a_load_does_no_harm(saved: Any) -> None:
    def after_evaluation() -> dict[str, Any]:
        run = Run(seed=9)
        run.evaluate()
        return run.load(saved[0]).contents()

    assert_same(run_ranks(2, after_evaluation)[1], saved[1])


def test_an_optimizer_without_state_is_saved_without_a_step_and_filled_by_a_load(
    saved: Any, tmp_path: Path
) -> None:
    def stateless(seed: int) -> Run:
        run = Run(seed, sharded=False)
        run.optimizer = torch.optim.AdamW(run.model.parameters(), lr=1e-2)
        return run

    def save_then_load() -> tuple[bool, dict[str, Any]]:
        run = stateless(9)
        stateless(8).load(run.save(tmp_path))
        return bool(run.optimizer.state), run.load(saved[0]).contents()

    has_state, contents = run_ranks(1, save_then_load)[0]
    assert not has_state
    assert_same(contents, saved[1])


def test_weights_alone_are_loaded_without_optimizer(saved: Any) -> None:
    model = Network()
    state = load(saved[0], model, None, None)
    assert state == TrainState(step=3, tokens_seen=96, rows_read=3)
    expected = saved[1]["model.embedding.weight"]
    np.testing.assert_array_equal(model.head.weight.detach().numpy(), expected)


def test_a_committed_step_is_never_written_again(saved: Any) -> None:
    before = {p.name: p.stat().st_mtime_ns for p in saved[0].iterdir()}
    other = run_ranks(2, lambda: Run(seed=5).train(3).save(saved[0].parent))
    assert other == [saved[0]] * 2
    assert {p.name: p.stat().st_mtime_ns for p in saved[0].iterdir()} == before


def test_an_incomplete_folder_of_that_name_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "step-00000000").mkdir()
    assert latest(tmp_path) is None
    Run(sharded=False).save(tmp_path)
    assert [path.name for path in committed(tmp_path).values()] == ["step-00000000"]


def test_only_the_newest_are_kept_and_never_the_one_just_saved_removed(tmp_path: Path) -> None:
    run = Run(sharded=False)
    for run.step in (1, 2, 30):
        run.save(tmp_path, keep=2)
    assert names(tmp_path) == ["step-00000002", "step-00000030"]
    run.step = 1  # a run that was taken back
    run.save(tmp_path, keep=1)
    assert names(tmp_path) == ["step-00000001", "step-00000030"]


def test_the_newest_is_told_by_its_step_and_other_names_are_not_looked_at(tmp_path: Path) -> None:
    assert latest(tmp_path / "absent") is None
    run = Run(sharded=False)
    for run.step in (9, 10):
        path = run.save(tmp_path)
    for other in ("step-000000110", "step-00000099.bak", "xstep-00000099"):
        (tmp_path / other).symlink_to(path)
    assert latest(tmp_path) == path


def test_every_difference_is_listed_before_any_tensor_is_touched(saved: Any) -> None:
    class Other(Network):
        def __init__(self) -> None:
            super().__init__()
            self.blocks[0][0] = torch.nn.Linear(8, 9)
            self.temperature = torch.nn.Parameter(torch.full((1,), 7.0, dtype=torch.float64))
            self.extra = torch.nn.Parameter(torch.zeros(2))
            del self.forwards

    model = Other()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ConfigError) as error:
        load(saved[0], model, None, None)
    for part in (
        "missing there: model.extra",
        "unknown here: model.forwards",
        "model.blocks.0.0.weight is (8, 8) there, (9, 8) here",
        "model.temperature is torch.float32 there, torch.float64 here",
    ):
        assert part in str(error.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_tensor_that_one_rank_lacks_leaves_the_others_waiting(saved: Any) -> None:
    def loaded() -> str:
        run = Run()
        if torch.distributed.get_rank() == 1:
            del run.model.forwards
        with pytest.raises(ConfigError) as error:
            run.load(saved[0])
        return str(error.value)

    told = run_ranks(2, loaded, timeout_s=30)
    assert told[0] == told[1] and "unknown here: model.forwards" in told[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no train_state.json that can be read"),
        ('{"step": 3}', "no train_state.json that can be read"),
        ('{"step": -1, "tokens_seen": 3, "rows_read": 3}', "step=-1, .* is no position"),
        ('{"step": 1, "tokens_seen": 3.5, "rows_read": 3}', "tokens_seen=3.5, .* is no position"),
        ('{"step": 1, "tokens_seen": 3, "rows_read": 3, "noise": [NaN, 1]}', "no pair of averages"),
    ],
)
def test_a_position_that_is_none_is_taken(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "train_state.json").write_text(content)
    with pytest.raises(ConfigError, match=message):
        TrainState.read(tmp_path)


class _Malice:
    def __reduce__(self) -> Any:
        return os.mkdir, ("/tmp/ringshard-was-here",)


def test_a_metadata_file_cannot_run_code(tmp_path: Path) -> None:
    """Of one who can write all files, with digests that fit."""
    path = Run(sharded=False).save(tmp_path)
    malicious = pickle.dumps(_Malice())
    (path / ".metadata").write_bytes(malicious)
    manifest = Manifest.read(path)
    digest = xxhash.xxh3_128_hexdigest(malicious)
    files = manifest.files | {".metadata": Entry(len(malicious), digest, [])}
    Manifest(files, manifest.about).write(path)
    with pytest.raises(ConfigError, match=r"posix\.mkdir"):
        Run(sharded=False).load(path)
    assert not Path("/tmp/ringshard-was-here").exists()


def test_state_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    run = Run(sharded=False)
    run.optimizer.state[run.model.temperature]["step"] = 3
    with pytest.raises(ConfigError, match=r"keeps temperature\.step as a int"):
        run.save(tmp_path)
    assert latest(tmp_path) is None


def test_state_that_is_no_tensor_is_refused_at_the_first_save_hours_later() -> None:
    run = Run(sharded=False)
    run.optimizer.state[run.model.temperature]["step"] = 3
    trainer: Any = SimpleNamespace(model=run.model, optimizer=run.optimizer, state=run.state)
    absent: Any = None
    Save(absent, Checkpoint(every=0, at_end=False), absent).after_step(trainer, last=False)
    with pytest.raises(ConfigError, match=r"keeps temperature\.step as a int"):
        Save(absent, Checkpoint(every=1000), absent).after_step(trainer, last=False)
