"""Saving beside training: what is saved is what was there, and failures are told."""

import itertools
import os
import resource
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist
from checkpoint.network import Run
from ranks import run_ranks
from runs import curve, run_attempt, small_job
from torch.distributed.fsdp import fully_shard

from ringshard.checkpoint import saver as saving_beside
from ringshard.checkpoint.directory import committed
from ringshard.checkpoint.load import latest
from ringshard.checkpoint.manifest import DamagedError, Manifest
from ringshard.checkpoint.save import Place
from ringshard.checkpoint.saver import Saver


def saver(root: Path, keep: int = 0) -> Saver:
    return Saver(Place(root, keep), dist.new_group(backend="gloo"))


def _beside(root: Path) -> tuple[Any, Any]:
    """What was there when the save began, and what training came to."""
    run, beside = Run().train(2), saver(root)
    before = run.contents()
    run.start_saving(beside)
    run.train(2)
    beside.wait()
    return before, run.contents()


@pytest.mark.parametrize("world", [1, 2])
def test_training_on_changes_what_is_saved_or_the_other_way_round(
    world: int, tmp_path: Path
) -> None:
    before, after = run_ranks(world, _beside, tmp_path)[0]
    path = tmp_path / "step-00000002"
    for name, saved in run_ranks(world, lambda: Run(seed=9).load(path).contents())[0].items():
        np.testing.assert_array_equal(saved, before[name], err_msg=name)
    for name, trained in run_ranks(world, lambda: Run().train(4).contents())[0].items():
        np.testing.assert_array_equal(trained, after[name], err_msg=name)


def test_a_save_is_committed_only_when_it_is_asked_for(tmp_path: Path) -> None:
    def save() -> bool:
        beside = saver(tmp_path)
        Run().start_saving(beside)
        assert beside._running is not None
        beside._running.exception(timeout=60)
        return latest(tmp_path) is not None

    assert run_ranks(2, save) == [True, True]


def _on_a_disk_that_refuses(root: Path, victim: int, at_once: bool) -> tuple[str, int]:
    """A file of one rank may have no more than 1,000 bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    run, beside = Run().train(1), saver(root)
    save = partial(beside.start, at_once=at_once)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if dist.get_rank() == victim:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    save(run.state, run.model, run.optimizer)
    with pytest.raises(OSError) as error:
        beside.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert latest(root) is None
    save(run.train(1).state, run.model, run.optimizer)
    beside.wait()
    beside.close()
    return str(error.value), len(committed(root))


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_failed_save_is_told_to_one_rank_or_ends_saving(
    victim: int, at_once: bool, tmp_path: Path
) -> None:
    for told, count in run_ranks(2, _on_a_disk_that_refuses, tmp_path, victim, at_once):
        assert "File too large" in told and count == 1


@pytest.mark.parametrize("refused", [1, 3, 4])
def test_a_failed_save_is_never_tried_again_or_for_ever(
    refused: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the next one is due, and at the end as long as three in a row may fail."""
    job, usage, tries = small_job(tmp_path, steps=8), shutil.disk_usage(tmp_path), itertools.count()

    def full_at_first(_: Path) -> Any:
        return usage._replace(free=0) if next(tries) < refused else usage

    monkeypatch.setattr(shutil, "disk_usage", full_at_first)
    if refused > job.checkpoint.max_failed_saves:
        with pytest.raises(RuntimeError, match="0 bytes are free"):
            run_attempt(job, tmp_path / "run", 1, world=2)
        assert not committed(tmp_path / "run/checkpoints")
    else:
        run_attempt(job, tmp_path / "run", 1, world=2)
        assert list(committed(tmp_path / "run/checkpoints")) == [8]
    assert len(curve(tmp_path / "run")) == 8


def test_a_run_that_waits_for_its_saves_takes_the_memory_of_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = small_job(tmp_path, steps=8)
    job.checkpoint.asynchronous = False
    monkeypatch.delattr(saving_beside, "DefaultStager")
    run_attempt(job, tmp_path / "run", 1, world=2)
    assert list(committed(tmp_path / "run/checkpoints")) == [4, 8]
    assert len(curve(tmp_path / "run", "checkpoint/write_s")) == 2


def test_a_full_disk_is_noticed_when_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    with pytest.raises(OSError, match="a checkpoint of 26,952 bytes, 100 bytes are free"):
        Run(sharded=False).save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_save_left_takes_the_room_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that holds one checkpoint."""
    usage = shutil.disk_usage(tmp_path)

    def of_small_disk(root: Path) -> Any:
        left = sum(path.stat().st_size for path in root.rglob("*"))
        return usage._replace(free=50_000 - left)

    monkeypatch.setattr(shutil, "disk_usage", of_small_disk)
    for folder in (".tmp-step-00000001-x", ".trash-step-00000000-x"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__0_0.distcp").write_bytes(bytes(40_000))
    path = Run(sharded=False).save(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def _many(root: Path) -> tuple[int, int]:
    """Growth of memory over 50 saves, and the size of a checkpoint [bytes]."""
    model = torch.nn.Linear(1000, 1000)  # 4 MB, and twice that in the optimizer
    run = Run(sharded=False)
    run.model, run.optimizer = model, torch.optim.AdamW(model.parameters())
    beside = Saver(Place(root, keep=1), None)
    sizes = []
    for run.step in range(50):
        run.start_saving(beside)
        beside.wait()
        sizes.append(psutil.Process().memory_info().rss)
    return sizes[-1] - sizes[9], model.weight.nbytes


def test_memory_grows_with_every_save(tmp_path: Path) -> None:
    growth, size = run_ranks(1, _many, tmp_path)[0]
    assert growth < 3 * size


def _again_and_again(root: Path, saves: int) -> tuple[int, int]:
    """By how many open files and threads a rank grows that saves often, with barriers of training
    meanwhile."""
    run, beside = Run(), saver(root, keep=3)
    run.model = fully_shard(torch.nn.Linear(3, 3))
    run.optimizer = torch.optim.AdamW(run.model.parameters())
    process, held = psutil.Process(), []
    for run.step in range(1, saves + 1):
        run.start_saving(beside)
        dist.barrier()
        beside.wait()
        held.append((process.num_fds(), process.num_threads()))
    return held[-1][0] - held[2][0], held[-1][1] - held[2][1]


@pytest.mark.parametrize(("world", "saves"), [(1, 200), (2, 20)])
def test_many_saves_and_barriers_deadlock_or_leave_files_or_threads(
    world: int, saves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # half of the time
    for grown in run_ranks(world, _again_and_again, tmp_path, saves):
        assert max(grown) < 5  # a thread may be about to end
    newest = [saves - 2, saves - 1, saves]
    assert list(committed(tmp_path)) == newest
    assert {path.name for path in tmp_path.iterdir()} == {f"step-{step:08d}" for step in newest}


def test_a_checkpoint_just_written_is_damaged(tmp_path: Path) -> None:
    run = Run(sharded=False)
    path = run.save(tmp_path)
    try:
        manifest = Manifest.verified(path)
        run.load(path)
    except DamagedError as error:
        raise AssertionError from error
    assert set(manifest.files) == {"__0_0.distcp", ".metadata", "train_state.json"}
