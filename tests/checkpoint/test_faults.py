"""Killed with -9 at every point of a save: what is listed is whole, and what that step had."""

import os
import shutil
import signal
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint.network import Run
from ranks import run_ranks
from runs import curve, run_attempt, small_job

from ringshard.checkpoint import directory
from ringshard.checkpoint.directory import committed
from ringshard.checkpoint.group import everyones
from ringshard.checkpoint.manifest import Manifest
from ringshard.checkpoint.save import Place
from ringshard.checkpoint.saver import Saver


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def striking(
    function: Callable[..., Any], victim: int, after: bool, only: str = ""
) -> Callable[..., Any]:
    """Kills a process before or after the call; of a path, of one whose name begins so."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        strikes = not only or args[0].name.startswith(only)
        if strikes and not after:
            os.kill(victim, signal.SIGKILL)
        result = function(*args, **kwargs)
        if strikes and after:
            os.kill(victim, signal.SIGKILL)
        return result

    return call


BEFORE, AFTER = False, True
SHARD = "before a shard is on the disk"
POINTS: dict[str, tuple[object, str, bool, str]] = {
    "after the folder is made": (directory, "begin", AFTER, ""),
    SHARD: (os, "fsync", BEFORE, ""),
    "before the manifest": (Manifest, "write", BEFORE, ""),
    "before anything is synced": (directory, "sync", BEFORE, ""),
    "before the rename": (Path, "rename", BEFORE, ".tmp-step"),
    "after the rename": (Path, "rename", AFTER, ".tmp-step"),
    "while old ones are removed": (shutil, "rmtree", BEFORE, ""),
}
"""What the first rank does, which commits; a shard is written by each."""
COMMITTED = {"after the rename", "while old ones are removed"}


def _dies(root: Path, point: str, victim: int, beside: bool) -> None:
    run, rank = Run(), torch.distributed.get_rank()
    pids = everyones(os.getpid(), run.group)
    for _ in range(2):
        run.train(1).save(root)
    saver = Saver(Place(root, keep=1), torch.distributed.new_group(backend="gloo"))
    run.train(1)
    if rank == (victim if point == SHARD else 0):
        owner, name, after, only = POINTS[point]
        setattr(owner, name, striking(getattr(owner, name), pids[victim], after, only))
    if beside:
        run.start_saving(saver)
        run.train(1)
        saver.wait()
    else:
        run.save(root, keep=1)
    torch.distributed.barrier()


@pytest.mark.rotated(4)
@pytest.mark.parametrize("beside", [False, True], ids=["at once", "beside training"])
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_in_a_save_costs_more_than_that_save(
    point: str, victim: int, beside: bool, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="rank"):
        run_ranks(2, _dies, tmp_path, point, victim, beside)
    newest = max(committed(tmp_path))
    if victim == 0:
        assert newest == (3 if point in COMMITTED else 2)
    assert newest in (2, 3)  # the first rank may commit what the other one has written

    def restored() -> tuple[int, dict[str, Any]]:
        run = Run(seed=9)
        assert run.restore(tmp_path) == []
        return run.step, run.contents()

    step, contents = run_ranks(2, restored)[0]
    assert step == newest
    expected = run_ranks(2, lambda: Run().train(newest).contents())[0]
    for name, value in expected.items():
        np.testing.assert_array_equal(contents[name], value, err_msg=name)


def test_what_killed_saves_left_is_never_removed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="rank"):
        run_ranks(2, _dies, tmp_path, "before the manifest", 0, False)
    assert any(tmp_path.glob(".tmp-step-00000003-*"))
    run_ranks(2, lambda: Run().train(3).save(tmp_path, keep=2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]


def dies_in_saving(step: int) -> Callable[..., Any]:
    write = Manifest.write

    def call(self: Manifest, folder: Path) -> None:
        if f"step-{step:08d}" in folder.name:
            die()
        write(self, folder)

    return call


def test_three_crashes_in_a_row_cost_good_checkpoints_or_change_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt saves once, and dies in its second save."""
    job, run = small_job(tmp_path, steps=8), tmp_path / "run"
    job.checkpoint.every, job.checkpoint.keep, job.checkpoint.keep_best = 2, 2, False
    undisturbed = run_attempt(job, tmp_path / "whole", 1)
    left = {4: [2], 6: [2, 4], 8: [4, 6]}
    for attempt, (step, steps) in enumerate(left.items(), start=1):
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="rank"):
            patch.setattr(Manifest, "write", dies_in_saving(step))
            run_attempt(job, run, attempt)
        assert list(committed(run / "checkpoints")) == steps
    resumed = run_attempt(job, run, len(left) + 1)
    assert list(committed(run / "checkpoints")) == [6, 8]
    assert curve(run) == curve(tmp_path / "whole")
    assert all(torch.equal(resumed[name], tensor) for name, tensor in undisturbed.items())


def test_what_is_renamed_is_not_on_the_disk_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file and the folder before the rename, and its parent afterwards."""
    synced: list[Path] = []
    monkeypatch.setattr(directory, "sync", synced.append)
    path = Run(sharded=False).save(tmp_path)
    *before, parent = synced
    assert {file.name for file in before[:-1]} == {file.name for file in path.iterdir()}
    assert before[-1].name.startswith(".tmp-step") and parent == tmp_path
