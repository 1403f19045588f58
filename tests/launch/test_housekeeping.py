"""What may be done to a run."""

from pathlib import Path

from ringshard.checkpoint.directory import pin
from ringshard.launch.housekeeping import why_kept
from ringshard.launch.rundir import RunDir
from ringshard.launch.state import State


def test_a_run_is_deleted_with_a_checkpoint_that_is_pinned(tmp_path: Path) -> None:
    assert why_kept(RunDir(tmp_path), State.done) == ""
    checkpoint = tmp_path / "checkpoints/step-00000300"
    checkpoint.mkdir(parents=True)
    pin(checkpoint, "paper")
    assert why_kept(RunDir(tmp_path), State.done) == "step-00000300 is pinned for paper"


def test_a_run_can_not_be_deleted_because_it_has_a_best_checkpoint(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints/step-00000300"
    checkpoint.mkdir(parents=True)
    pin(checkpoint, "best")
    assert why_kept(RunDir(tmp_path), State.done) == ""
