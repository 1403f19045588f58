"""A run's status in MLflow is what its directory and the queue tell, whoever is left to look."""

from collections.abc import Callable
from typing import Any

import pytest

from ringshard.launch.rundir import RunDir
from ringshard.launch.slurm.queue import Queued
from ringshard.tracking.standing import standing

NOWHERE = "http://127.0.0.1:9"


def stands(run: Any, attempt: int = 1, jobs: dict[str, Queued] | None = None) -> tuple[str, str]:
    return standing(RunDir(run.path), attempt, lambda: jobs)


def queued(state: str) -> dict[str, Queued]:
    return {"12": Queued("12", state, "None", "tiny")}


@pytest.mark.parametrize(
    ("outcome", "why", "told"),
    [
        ("done", "finished", ("FINISHED", "done")),
        ("killed", "cancelled", ("KILLED", "killed: cancelled")),
        ("killed", "reached its time limit", ("KILLED", "killed: reached its time limit")),
        ("failed", "crashed", ("FAILED", "failed: crashed")),
    ],
)
def test_an_attempt_that_was_ended_has_another_status_than_its_end(
    run_at: Callable[[str], Any], outcome: str, why: str, told: tuple[str, str]
) -> None:
    run = run_at(NOWHERE)
    run.attempt(1)
    run.end(1, outcome, why=why)
    assert stands(run) == told


def test_an_attempt_that_nobody_ended_is_at_work_while_held(run_at: Callable[[str], Any]) -> None:
    run = run_at(NOWHERE)
    run.attempt(1)
    assert stands(run) == ("RUNNING", "running")
    run.die()
    assert stands(run) == ("KILLED", "interrupted")
    run.attempt(2)
    assert stands(run, attempt=1) == ("KILLED", "interrupted")  # a shipper outlived its agent
    assert stands(run, attempt=2) == ("RUNNING", "running")


def test_a_run_in_the_queue_is_killed_or_one_that_left_it_waits_for_ever(
    run_at: Callable[[str], Any],
) -> None:
    run = run_at(NOWHERE)
    run.attempt(1)
    run.submit(1, "12")
    run.die()
    assert stands(run, jobs=queued("PENDING")) == ("SCHEDULED", "queued")
    assert stands(run, jobs=queued("RUNNING")) == ("RUNNING", "running")
    run.end(1, "requeued", why="preempted")
    again = ("SCHEDULED", "requeued: preempted")
    assert stands(run, jobs=queued("REQUEUED")) == stands(run, jobs=queued("PENDING")) == again
    assert stands(run, jobs=None) == again  # the cluster does not answer
    assert stands(run, jobs={}) == ("KILLED", "interrupted")
