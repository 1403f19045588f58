"""How long before its time limit a job is told, and by whom; scontrol is a stand-in here, for a
limit that moves and a controller that is away."""

import os
import time
from pathlib import Path

import pytest

from ringshard.config.schema.hardware import Hardware, Scheduler, Slurm
from ringshard.config.schema.job import Job
from ringshard.config.schema.launcher import Launcher
from ringshard.config.schema.reader import as_yaml
from ringshard.launch.rundir import RunDir
from ringshard.launch.slurm import attempt as attempts
from ringshard.launch.slurm.batches import Planned, batches
from ringshard.launch.slurm.limit import Clock
from ringshard.launch.slurm.node import Node
from ringshard.tracking.spool import Spool


def job(minutes: int | None = 60, lead_s: int | None = None) -> Job:
    hardware = Hardware(Scheduler.slurm, slurm=Slurm(time_minutes=minutes))
    return Job(hardware=hardware, launcher=Launcher(lead_s=lead_s))


def saved_in(folder: Path, attempt: int, *seconds: float) -> None:
    spool = Spool(folder, attempt)
    for step, took in enumerate(seconds, start=1):
        spool.log(step, {"train/loss": 1.0})
        spool.log(step, {"checkpoint/write_s": took})
    spool.close()


def lead(asked: Job, folder: Path) -> int:
    return Planned(asked, RunDir(folder), 1).lead_s


def test_a_run_whose_checkpoints_take_minutes_is_told_two_minutes_before_its_limit(
    tmp_path: Path,
) -> None:
    """The longest of all attempts counts, half of the time is the most, and what the user says."""
    assert lead(job(), tmp_path) == 120
    saved_in(tmp_path, 1, 20.0, 100.0)
    saved_in(tmp_path, 2, 30.0)
    assert lead(job(), tmp_path) == lead(job(None), tmp_path) == 360
    assert lead(job(minutes=5), tmp_path) == 150
    assert lead(job(lead_s=45), tmp_path) == 45
    (one,) = batches([Planned(job(), RunDir(tmp_path), 3)], None, [], 16)
    assert "--signal=USR2@360\n" in one.request.script(1)
    assert [task.lead_s for task in one.runs] == [360]


@pytest.mark.parametrize(("minutes", "seconds"), [(1, 30), (2, 60), (4, 120)])
def test_a_notice_is_longer_than_a_limit_of_a_minute_or_two(
    minutes: int, seconds: int, tmp_path: Path
) -> None:
    """And a job may always go on for the other half."""
    assert lead(job(minutes), tmp_path) == seconds


def test_a_job_that_is_queued_again_forgets_how_long_its_checkpoints_took(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.attempt(1).mkdir(parents=True)
    (run.attempt(1) / "job.yaml").write_text(as_yaml(job()))
    (run.attempt(1) / "submitted.json").write_text("{}")
    assert attempts.enter(run, 1, Node("7", 0, 0, ["a"]), asked_s=120) == 1
    assert attempts.lead_s(run, 1) == 120
    saved_in(tmp_path, 1, 100.0)
    assert attempts.enter(run, 1, Node("7", 1, 0, ["a"]), asked_s=120) == 2
    assert attempts.lead_s(run, 2) == 360
    assert attempts.enter(run, 1, Node("7", 2, 0, ["a"]), asked_s=500) == 3
    assert attempts.lead_s(run, 3) == 500  # Slurm's own signal comes earlier


def scontrol(folder: Path, line: str) -> None:
    (folder / "scontrol").write_text(f"#!/bin/sh\necho asked >> {folder}/asked\n{line}\n")
    (folder / "scontrol").chmod(0o755)


def ends_in(folder: Path, seconds: float) -> None:
    end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + seconds))
    scontrol(folder, f"echo 'JobId=7 EndTime={end} PreemptTime=None'")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a `scontrol` that is found before any other."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def clock_of(folder: Path) -> Clock:
    """Of a job that has made its first step."""
    (folder / "first-step.json").touch()
    return Clock("7", 360, folder / "first-step.json")


def test_a_job_is_stopped_by_its_own_clock_before_there_is_anything_to_save(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_in(cluster, 200)
    clock = Clock("7", 360, cluster / "first-step.json")
    assert not clock.rings() and not (cluster / "asked").exists()
    (cluster / "first-step.json").touch()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 2)
    assert clock.rings()


def test_a_job_waits_for_a_signal_that_comes_too_late_to_save(cluster: Path) -> None:
    ends_in(cluster, 200)
    clock = clock_of(cluster)
    assert clock.rings() and not clock.rings()


def test_a_job_stops_though_its_limit_was_moved_or_asks_slurm_in_a_loop(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_in(cluster, 1000)
    clock = clock_of(cluster)
    assert [clock.rings() for _ in range(9)] == [False] * 9
    assert (cluster / "asked").read_text().split() == ["asked"]
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 700)
    ends_in(cluster, 1000)  # of then
    assert not clock.rings()
    monkeypatch.setattr(time, "time", lambda: now + 1400)
    assert clock.rings()


@pytest.mark.parametrize(
    ("line", "asks_again"), [("exit 1", True), ("echo EndTime=Unknown", False)]
)
def test_a_job_whose_end_nobody_knows_stops_or_ends_in_a_traceback(
    line: str, asks_again: bool, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol(cluster, line)
    clock = clock_of(cluster)
    assert not clock.rings()
    ends_in(cluster, 10)
    assert not clock.rings()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    assert clock.rings() is asks_again
