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
