"""How often the cluster is asked: once, however many runs there are."""

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from typer import Exit

from ringshard import runs
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.slurm import queue
from ringshard.launch.state import State, state
from ringshard.report.runs import find


@pytest.mark.parametrize("command", ["list_", "cancel", "delete", "retry"])
def test_each_run_of_a_list_is_asked_for_by_itself(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(3):
        attempt = tmp_path / f"outputs/runs/run-{index}/attempts/1"
        attempt.mkdir(parents=True)
        submitted = {"submission": str(tmp_path), "index": index}
        (attempt / "submitted.json").write_text(json.dumps(submitted))
        (attempt / "job.yaml").write_text("{}")
        (attempt.parents[1] / "run.json").write_text('{"created": 1}')
        (attempt.parents[1] / "DONE").touch()
    (tmp_path / "submission.json").write_text('{"job_id": 7}')
    asked = tmp_path / "asked"
    (tmp_path / "squeue").write_text(f"#!/bin/sh\necho squeue >> {asked}\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert queue.read_queue() == {}
    folders = [tmp_path / "outputs"]
    with suppress(Exit):
        getattr(runs, command)(folders)
    assert asked.read_text().splitlines() == ["squeue"] * 2


def test_an_output_root_with_runs_in_it_hides_its_sweeps(tmp_path: Path) -> None:
    for name in ("runs/one", "sweeps/night/two", "debug/runs/three"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.json").write_text('{"created": 1}')
    assert {run.name for run in find([tmp_path])} == {"one", "two"}
    assert [run.name for run in find([tmp_path / "debug"])] == ["three"]
    assert [run.name for run in find([tmp_path / "sweeps/night"])] == ["two"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a file to another user")
def test_another_users_run_that_is_at_work_is_interrupted(tmp_path: Path) -> None:
    """The queue tells of one's own jobs alone."""
    attempt = tmp_path / "run/attempts/1"
    attempt.mkdir(parents=True)
    (attempt / "submitted.json").write_text(json.dumps({"submission": str(tmp_path), "index": 0}))
    (tmp_path / "submission.json").write_text('{"job_id": 7}')
    run = RunDir(tmp_path / "run")
    run.record.write_text('{"created": 1}')
    assert state(run, {}) is State.interrupted
    os.chown(run.record, 12345, 12345)
    assert state(run, {}) is State.unknown
    run.finish(1, Outcome.done, {})
    assert state(run, {}) is State.done
