"""How trials end before their runs are done, and what a search makes of them.

Training is on paper here, so that a trial ends at a chosen instant; tests/slurm/test_search.py
searches on a real Slurm, test_search.py on this machine.
"""

import math
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch.paper import BATCH, Paper, planned_in

from ringshard.config.compose import Command
from ringshard.files import write_json
from ringshard.launch import freeze
from ringshard.launch.identity import Run
from ringshard.launch.progress import Follower
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.search.loop import Loop, _Active
from ringshard.launch.search.show import ranked
from ringshard.launch.search.start import _ended
from ringshard.launch.search.study import Study, Trial
from ringshard.launch.state import State
from ringshard.launch.stop import StopRequests
from ringshard.tracking.spool import Spool


@pytest.fixture(autouse=True)
def _stand_in_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_trial_that_was_stopped_early_wins_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = planned_in(tmp_path, "search=random", BATCH)
    study = Study(planned.folder, planned.space, planned.policy.search)

    def code() -> int:
        return _ended(planned, study, Paper(), StopRequests())

    pruned, whole = study.ask(), study.ask()
    study.report(pruned, 10, 0.1)
    study.tell(pruned, "pruned")
    assert code() == 1 and "best" not in capsys.readouterr().out
    study.note(whole, run="whole")
    study.tell(whole, "complete", 2.0)
    assert code() == 0 and "whole  val/loss=2\n" in capsys.readouterr().out
    assert [trial.number for trial in ranked(study.trials(), minimize=True)] == [1, 0]


class Held(Paper):
    """Runs that are at work until they are interrupted; Ctrl-C comes at a search's third look, when
    all that may run at once do."""

    def __init__(self) -> None:
        super().__init__()
        self.stop, self.looks, self.asked = StopRequests(), 0, list[str]()

    def look(self) -> None:
        self.looks += 1
        if self.looks == 3:
            self.stop.remember(signal.SIGINT, None)

    def state(self, run: RunDir) -> State:
        at_work = run.path in self.started and not run.outcome()
        return State.running if at_work else super().state(run)

    def start(self, run: Run) -> None:
        self.started.append(run.dir.path)
        with run.dir.claimed():
            freeze.freeze(run, Command("train", [], []))

    def interrupt(self, run: RunDir, number: signal.Signals) -> None:
        self.asked.append(run.path.name)
        run.finish(1, Outcome.killed, {})


TWO_SHARE = ("search=random", BATCH, "search.trials=3", "launcher.max_parallel=3")


def held(folder: Path, *argv: str) -> tuple[Loop, Study, Held]:
    planned = planned_in(folder, *argv)
    study, place = Study(planned.folder, planned.space, planned.policy.search), Held()
    return Loop(planned, study, place), study, place


def test_one_ctrl_c_reaches_a_run_twice_where_two_trials_share_it(tmp_path: Path) -> None:
    """Twice means at once, without a checkpoint."""
    loop, study, place = held(tmp_path, *TWO_SHARE)
    loop.run(place.stop)
    assert len(study.trials()) == 3 and 1 <= len(place.started) <= 2
    assert sorted(place.asked) == sorted(path.name for path in place.started)


def test_a_search_that_fails_leaves_runs_training_unattended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the third trial is noted."""

    def note(study: Study, trial: Trial, **facts: object) -> None:
        if trial.number == 2:
            raise OSError("no space left on device")

    loop, _, place = held(tmp_path, *TWO_SHARE)
    monkeypatch.setattr(Study, "note", note)
    with pytest.raises(OSError, match="no space left"):
        loop.run(place.stop)
    assert place.started and sorted(place.asked) == sorted(path.name for path in place.started)
    assert all((path / "KILLED").exists() for path in place.started)


class Alive(Paper):
    """Runs that record values and then are a process, which ends when it is asked to."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.values, self.processes = values, dict[Path, subprocess.Popen[bytes]]()

    def state(self, run: RunDir) -> State:
        process = self.processes.get(run.path)
        if process and process.poll() is None:
            return State.running
        if process and not run.outcome():
            run.finish(1, Outcome.killed, {"why": run.why_stopped(1)})
        return super().state(run)

    def begin(self, run: RunDir) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["sleep", "20"])

    def start(self, run: Run) -> None:
        with run.dir.claimed():
            freeze.freeze(run, Command("train", [], []))
        spool = Spool(run.dir.path, 1)
        for index, value in enumerate(self.values):
            spool.log(10 * index, {"val/loss": value})
        self.processes[run.dir.path] = process = self.begin(run.dir)
        here = {"host": socket.gethostname(), "pid": process.pid}
        write_json(run.dir.attempt(1) / "started.json", here)


def test_a_trial_that_diverges_after_a_good_value_trains_on(tmp_path: Path) -> None:
    planned = planned_in(tmp_path, "search=random", BATCH, "search.trials=1")
    study = Study(planned.folder, planned.space, planned.policy.search)
    Loop(planned, study, Alive(1.0, math.nan)).run(StopRequests())
    (trial,) = study.trials()
    assert (trial.state, trial.value) == ("pruned", None)
    why = RunDir(planned.folder / trial.facts["run"]).why_stopped(1)
    assert why == "pruned: val/loss=nan at step 10 is not finite"


COUNTS = """
import os, signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
os.mkdir(sys.argv[1] + "/ready")
while not asked:
    time.sleep(0.02)
time.sleep(1.5)
os.mkdir(f"{sys.argv[1]}/asked-{len(asked)}")
"""


class Counting(Alive):
    """Runs that save for a while once they are asked to end, and tell how often they were."""

    def begin(self, run: RunDir) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen([sys.executable, "-c", COUNTS, str(run.path)])
        while not (run.path / "ready").exists():
            time.sleep(0.02)
        return process


def test_a_run_that_two_trials_share_is_stopped_early_by_both(tmp_path: Path) -> None:
    """And by a Ctrl-C while it saves: it would end at once."""
    planned = planned_in(tmp_path, *TWO_SHARE)
    study = Study(planned.folder, planned.space, planned.policy.search)
    place, stop = Counting(math.nan), StopRequests()
    looked = place.look

    def look() -> None:
        looked()
        if any(run.why_stopped(1) for run in map(RunDir, place.processes)):
            stop.remember(signal.SIGINT, None)
            place.look = looked  # type: ignore[method-assign]

    place.look = look  # type: ignore[method-assign]
    Loop(planned, study, place).run(stop)
    assert place.processes and all((path / "asked-1").exists() for path in place.processes)
    assert stop and {trial.state for trial in study.trials()} == {"pruned"}


def test_a_run_that_could_not_be_stopped_early_is_left_alone_and_told_as_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """scancel fails at first, and works for the value after."""
    fake = tmp_path / "scancel"
    fake.write_text(f"#!/bin/sh\necho $1 >> {tmp_path}/asked\ntest -e {tmp_path}/works\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    write_json(tmp_path / "submission.json", {"job_id": 7})
    planned = planned_in(tmp_path, "search=random", BATCH, "search.trials=1")
    study = Study(planned.folder, planned.space, planned.policy.search)
    loop, trial = Loop(planned, study, Paper()), study.ask()
    run = planned.run(trial.point)
    submitted = {"submission": str(tmp_path), "index": None}
    freeze.freeze(run, Command("train", [], []), submitted)
    one = _Active(trial, run, Follower(run.dir.path, "val/loss"))
    spool = Spool(run.dir.path, 1)
    for step, why in ((10, None), (20, "pruned: val/loss=nan at step 20 is not finite")):
        spool.log(step, {"val/loss": math.nan})
        loop._follow(one, State.running)
        assert run.dir.why_stopped(1) == why
        (tmp_path / "works").touch()
    assert (tmp_path / "asked").read_text() == "7\n" * 3
    assert "is not finite, but not cancelled: scancel" in capsys.readouterr().out


def test_a_trial_that_ends_infinitely_high_wins_the_search(tmp_path: Path) -> None:
    planned = planned_in(tmp_path, "search=random", BATCH, "search.trials=1")
    study = Study(planned.folder, planned.space, planned.policy.search)
    place = Alive(1.0, math.inf)
    started = place.start

    def start(run: Run) -> None:
        started(run)
        place.processes.pop(run.dir.path).kill()
        run.dir.finish(1, Outcome.done, {})

    place.start = start  # type: ignore[method-assign]
    Loop(planned, study, place).run(StopRequests())
    (trial,) = study.trials()
    assert trial.state == "fail" and "inf is not finite" in trial.facts["why"]
