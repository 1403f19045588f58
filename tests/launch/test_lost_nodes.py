"""Attempts that left no word, and what becomes of a job that Slurm queues again by itself."""

from pathlib import Path

import pytest

from ringshard.checkpoint.manifest import Manifest
from ringshard.config.schema.launcher import Launcher
from ringshard.files import write_json
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.slurm.agent import Agent
from ringshard.launch.slurm.attempt import in_vain
from ringshard.launch.slurm.node import Node
from ringshard.launch.slurm.verdict import PREEMPTED


def wordless(run: RunDir, number: int, step: int) -> None:
    """An attempt whose node died."""
    run.attempt(number).mkdir(parents=True)
    write_json(run.attempt(number) / "started.json", {"step": step})


def test_a_job_that_kills_its_node_at_the_same_step_is_queued_again_as_if_it_went_on(
    tmp_path: Path,
) -> None:
    run = RunDir(tmp_path)
    saved = tmp_path / "checkpoints/step-00000040"
    saved.mkdir(parents=True)
    Manifest({}).write(saved)
    for number, step in enumerate((0, 20, 40, 40), start=1):
        wordless(run, number, step)
        assert in_vain(run, 1, number) == max(0, number - 3), "it went on so far"
    assert in_vain(run, 1, 5) == 2 and in_vain(run, 4, 5) == 1
    run.finish(4, Outcome.requeued, {"why": PREEMPTED})
    assert in_vain(run, 1, 5) == 0


def test_a_run_that_loses_its_node_twice_before_it_saved_anything_goes_on_for_ever(
    tmp_path: Path,
) -> None:
    run = RunDir(tmp_path)
    for number in (1, 2, 3):
        wordless(run, number, 0)
    here = Agent(run, 1, "standin", 120, 30, Node("12", 2, 0, ["a"]))
    here._refuse(2, Launcher())
    with pytest.raises(RuntimeError, match="2 times with nothing new saved"):
        here._refuse(3, Launcher())
    assert run.outcome() is Outcome.failed
