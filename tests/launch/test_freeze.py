"""An attempt is there whole or not at all."""

import os
import signal
from pathlib import Path

import pytest

from ringshard.config.complete import complete
from ringshard.config.compose import Command, compose
from ringshard.config.schema.job import Job
from ringshard.entry import run_job_app
from ringshard.launch import freeze
from ringshard.launch.environment import gpus
from ringshard.launch.identity import Run, place
from ringshard.launch.resume import resume
from ringshard.launch.start import start


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Run, Command]:
    command = Command("train", [], ["sweep.name=night"])
    members = compose(command, Job)
    complete(members[0].config, tmp_path)
    return place(command, members)[0], command


def test_a_command_killed_while_it_freezes_leaves_no_attempt(
    planned: tuple[Run, Command],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, command = planned
    child = os.fork()
    if not child:
        try:
            monkeypatch.setattr(freeze, "code_of", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            freeze.freeze(run, command)
        finally:  # it must not go on with the other tests
            os._exit(1)
    _, how = os.waitpid(child, 0)
    assert how == signal.SIGKILL
    assert run.dir.last_attempt() == 0
    assert run_job_app("train", [f"resume={run.dir.path}"], Job, start, resume) == 2
    assert "is not the folder of a run: it has no run.json" in capsys.readouterr().err
    assert freeze.freeze(run, command) == 1
    assert run.dir.job(1) == run.job and run.dir.record.exists()


def test_more_processes_than_gpus_is_a_traceback_of_a_rank(tmp_path: Path) -> None:
    assert gpus({}, tmp_path / "absent") is None
    (tmp_path / "0000:01:00.0").mkdir()
    assert gpus({}, tmp_path) == 1
    seen = {"": 0, "-1": 0, "0,3": 2, "MIG-a, MIG-b": 2}
    assert {n: gpus({"CUDA_VISIBLE_DEVICES": n}, tmp_path) for n in seen} == seen
