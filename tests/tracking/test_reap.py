"""`ringshard track reap` closes what died with its machine, and nothing that may still run."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tracking.shipped import expected, history, remote, ship

from ringshard.config.schema.reader import plain
from ringshard.launch.rundir import RunDir
from ringshard.launch.slurm.queue import Queued
from ringshard.launch.state import Queue
from ringshard.report.runs import Run
from ringshard.tracking import store
from ringshard.tracking.reap import reap


def reaped(run: Any, jobs: Queue = None, *lost_hosts: str) -> list[tuple[bool, str]]:
    found = Run(RunDir(run.path))
    return [judged for _, judged in reap([found], lost_hosts, lambda: jobs)]


def started(run: Any, attempt: int, host: str) -> None:
    file = run.path / "attempts" / str(attempt) / "started.json"
    file.write_text(json.dumps({"host": host, "pid": 1}))


def test_a_run_that_died_with_its_agent_is_running_in_mlflow_for_ever(run: Any) -> None:
    run.attempt(1)
    run.train(1, range(3))
    assert ship(run) == "RUNNING"
    assert re.fullmatch(r"20..-..-..T..:..:..Z", remote(run).data.tags["ringshard.heartbeat"])
    run.train(1, range(3, 5))
    run.die()
    command = [sys.executable, "-m", "ringshard.cli", "track", "reap", str(run.path.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == (f"{run.path}: KILLED (interrupted)\n1 runs were closed in MLflow\n")
    assert remote(run).info.status == "KILLED"
    assert remote(run).data.tags["ringshard.state"] == "interrupted"
    assert history(run) == expected(5)
    assert reaped(run) == []


def test_a_run_at_work_is_closed(run: Any) -> None:
    run.attempt(1)
    ship(run)
    assert reaped(run) == [(False, "left as it is, somebody is at work on it")]
    assert remote(run).info.status == "RUNNING"


def test_a_run_of_another_machine_is_closed_without_its_word(run: Any) -> None:
    run.attempt(1)
    started(run, 1, "node5")
    ship(run)
    run.die()
    why = "only node5 can tell whether it runs there: reap it there, or --lost-host node5"
    assert reaped(run) == [(False, f"left as it is, {why}")]
    assert reaped(run, None, "node5") == [(True, "KILLED (interrupted)")]


@pytest.mark.parametrize(
    ("jobs", "why"),
    [
        ({"12": Queued("12", "RUNNING", "None", "tiny")}, "it is running"),
        ({"12": Queued("12", "PENDING", "BeginTime", "tiny")}, "it is pending"),
        (None, "only the cluster could tell, which does not answer"),
    ],
)
def test_a_run_that_slurm_may_still_have_is_closed(run: Any, jobs: Queue, why: str) -> None:
    run.attempt(1)
    started(run, 1, "node5")
    ship(run)
    run.submit(1, "12")
    run.die()
    assert reaped(run, jobs) == [(False, f"left as it is, {why}")]
    assert remote(run).info.status == "RUNNING"
    assert reaped(run, {}) == [(True, "KILLED (interrupted)")]


def test_a_requeued_run_that_was_cancelled_in_the_queue_waits_in_mlflow_for_ever(run: Any) -> None:
    run.attempt(1)
    run.submit(1, "12")
    ship(run)
    run.end(1, "requeued", why="preempted")
    assert ship(run) == remote(run).info.status == "SCHEDULED"
    assert remote(run).data.tags["ringshard.state"] == "requeued: preempted"
    assert reaped(run, {}) == [(True, "KILLED (interrupted)")]


def test_a_status_that_somebody_else_has_set_stays(run: Any) -> None:
    run.attempt(1)
    run.train(1, range(2))
    run.end(1, "done")
    ship(run)
    client = store.connect(run.job.tracking.uri)
    client.update_run(remote(run).info.run_id, status="RUNNING")
    assert reaped(run) == [(True, "FINISHED (done)")]
    assert remote(run).info.status == "FINISHED"


def test_a_run_that_mlflow_never_heard_of_is_created_by_reaping(
    run_at: Callable[[str], Any], tmp_path: Path
) -> None:
    run = run_at(f"sqlite:///{tmp_path / 'mlflow.db'}")
    run.attempt(1)
    run.die()
    assert reaped(run) == []
    assert not (tmp_path / "mlflow.db").exists()


def test_a_run_that_was_synced_elsewhere_is_closed_where_it_never_was(
    run: Any, tmp_path: Path
) -> None:
    run.attempt(1)
    run.train(1, range(3))
    synced = run.job.tracking.uri
    run.job.tracking.uri = f"sqlite:///{tmp_path / 'own.db'}"
    (run.path / "attempts/1/job.yaml").write_text(yaml.safe_dump(plain(run.job)))
    run.job.tracking.uri = synced
    ship(run)
    run.die()
    assert reaped(run) == [(True, "KILLED (interrupted)")]
    assert remote(run).info.status == "KILLED"
    assert not (tmp_path / "own.db").exists()
