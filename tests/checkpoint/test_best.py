"""The checkpoint of the lowest validation loss stays, whatever else goes."""

import errno
from pathlib import Path

import pytest
from checkpoint.network import Run
from runs import curve, run_attempt, small_job

from ringshard.checkpoint import directory
from ringshard.checkpoint import save as saving
from ringshard.checkpoint.best import loss_of
from ringshard.checkpoint.directory import committed, named
from ringshard.checkpoint.save import Place, save

NAN = float("nan")


def saved(root: Path, losses: dict[int, float | None]) -> tuple[list[int], Path | None]:
    """Steps that are kept of those saved with these losses, and the best."""
    run = Run(sharded=False)
    place = Place(root, keep=1, keep_best=True)
    for run.step, loss in losses.items():
        save(place.measured(loss), run.state, run.model, run.optimizer, run.group)
    return list(committed(root)), named(root, "best")


def test_the_best_goes_with_the_old_ones(tmp_path: Path) -> None:
    best = tmp_path / "step-00000002"
    assert saved(tmp_path, {1: 3.0, 2: 2.0, 3: 2.5, 4: 2.6}) == ([2, 4], best)
    assert saved(tmp_path, {5: NAN, 6: None}) == ([2, 6], best)
    assert saved(tmp_path, {7: 1.5, 8: None}) == ([7, 8], tmp_path / "step-00000007")


def test_none_is_the_best_where_nothing_was_evaluated(tmp_path: Path) -> None:
    assert saved(tmp_path, {1: None, 2: NAN}) == ([2], None)


def test_a_kill_after_the_commit_loses_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, {1: 3.0})
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(saving, "pin_best", lambda root: (_ for _ in ()).throw(KeyboardInterrupt))
        saved(tmp_path, {2: 2.0})
    assert saved(tmp_path, {3: 2.5}) == ([2, 3], tmp_path / "step-00000002")


@pytest.mark.parametrize("what", ["pin_best", "prune"])
def test_a_checkpoint_is_not_saved_when_older_ones_are_in_the_way(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    saved(tmp_path, {1: 3.0, 2: 4.0})
    monkeypatch.setattr(saving if what == "pin_best" else directory, what, refuse)
    with pytest.warns(UserWarning, match="step-00000003 is saved.*No space left"):
        steps, best = saved(tmp_path, {3: 5.0})
    assert steps == ([1, 3] if what == "pin_best" else [1, 2, 3])
    assert best == tmp_path / "step-00000001"


def test_a_run_keeps_another_one_than_that_of_its_lowest_loss(tmp_path: Path) -> None:
    job = small_job(tmp_path, steps=4, eval_every=2)
    job.checkpoint.every, job.checkpoint.keep = 2, 1
    job.optimizer.lr = 0.3  # so high that the loss rises
    run_attempt(job, tmp_path / "run", 1, 2)
    losses = curve(tmp_path / "run", "val/loss")
    best = named(tmp_path / "run/checkpoints", "best")
    assert losses[2] < losses[4]
    assert best == tmp_path / "run/checkpoints/step-00000002" and loss_of(best) == losses[2]
