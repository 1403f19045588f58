"""What the queue tells of runs, and how often it is asked: once, however many runs there are.

Slurm's commands are stand-ins where an answer is needed that a real Slurm gives by chance, or where
calls are counted; tests/slurm has the same commands on a real one.
"""

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from typer import Exit

from ringshard import runs
from ringshard.config.compose import Command
from ringshard.config.schema.hardware import Hardware, Scheduler, Slurm
from ringshard.config.schema.job import Job
from ringshard.config.schema.launcher import Launcher, Retry
from ringshard.config.schema.reader import as_yaml
from ringshard.config.schema.tracking import Tracking
from ringshard.errors import ConfigError
from ringshard.files import write_json
from ringshard.launch import manifest
from ringshard.launch.identity import Run
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.search.places import OnSlurm
from ringshard.launch.slurm import queue
from ringshard.launch.slurm.queue import Queued
from ringshard.launch.slurm.start import tell_unused
from ringshard.launch.slurm.watch import synchronize
from ringshard.launch.start import Batch
from ringshard.launch.state import QueueWatch, State, is_wanted, state
from ringshard.launch.table import error, reason
from ringshard.report.runs import find


def three_runs(folder: Path) -> list[Path]:
    """Which were submitted as an array."""
    (folder / "submission.json").write_text('{"job_id": 7}')
    for index in range(3):
        attempt = folder / f"outputs/runs/run-{index}/attempts/1"
        attempt.mkdir(parents=True)
        submitted = {"submission": str(folder), "index": index}
        (attempt / "submitted.json").write_text(json.dumps(submitted))
        (attempt / "job.yaml").write_text("{}")
        (attempt.parents[1] / "run.json").write_text('{"created": 1}')
    return sorted((folder / "outputs/runs").iterdir())


@pytest.mark.parametrize("command", ["list_", "cancel", "delete", "retry"])
def test_each_run_of_a_list_is_asked_for_by_itself(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in three_runs(tmp_path):
        (run / "DONE").touch()
    asked = tmp_path / "asked"
    (tmp_path / "squeue").write_text(f"#!/bin/sh\necho squeue >> {asked}\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert queue.read_queue() == {}
    folders = [tmp_path / "outputs"]
    with suppress(Exit):
        getattr(runs, command)(folders)
    assert asked.read_text().splitlines() == ["squeue"] * 2


def test_a_filter_of_the_shell_hides_live_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of Slurm's commands other than squeue; where the cluster is stays."""
    for name in ("squeue", "scancel", "sacct"):
        (tmp_path / name).write_text(f"#!/bin/sh\nenv > {tmp_path}/seen-{name}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    kept = {"SLURM_CONF": "/slurm.conf", "SLURM_CLUSTERS": "big", "SLURM_JWT": "x"}
    gone = ("SQUEUE_PARTITION", "SQUEUE_STATES", "SCANCEL_STATE", "SACCT_FORMAT", "SLURM_JOB_ID")
    for name, value in {**kept, **dict.fromkeys(gone, "gpu")}.items():
        monkeypatch.setenv(name, value)
    queue.read_queue()
    queue.cancel(["7"])
    queue.ended(["7"])
    for name in ("squeue", "scancel", "sacct"):
        seen = dict(
            line.split("=", 1)
            for line in (tmp_path / f"seen-{name}").read_text().splitlines()
            if line.startswith(("SLURM_", "SQUEUE_", "SCANCEL_", "SACCT_"))
        )
        assert seen == kept


def test_an_account_that_the_shell_gives_to_sbatch_is_dropped_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ACCOUNT", "PARTITION", "QOS", "RESERVATION"):
        monkeypatch.setenv(f"SBATCH_{name}", "mine")
    tell_unused(Job(hardware=Hardware(slurm=Slurm(partition="gpu", qos="long"))))
    assert capsys.readouterr().err.splitlines() == [
        "SBATCH_ACCOUNT=mine of the shell is not used: give hardware.slurm.account",
        "SBATCH_RESERVATION=mine of the shell is not used: give hardware.slurm.extra.reservation",
    ]


def test_a_run_without_a_sweep_asks_for_a_list_that_it_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "ask_queue", lambda: pytest.fail("squeue was called"))
    manifest.write([Run(Job(), [], "x", None, RunDir(tmp_path))])


def test_whoever_watches_asks_squeue_in_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [RunDir(path) for path in three_runs(tmp_path)]
    now, asked = [100.0], []
    monkeypatch.setattr("ringshard.launch.state.ask_queue", lambda: asked.append(now[0]))
    monkeypatch.setattr("ringshard.launch.state.time.monotonic", lambda: now[0])
    watched = QueueWatch()
    for second in range(40):
        now[0] = 100.0 + second
        watched.jobs(found)
        if second == 5:
            (found[1].path / "attempts/1/started.json").write_text("{}")
        if second == 9:
            (found[1].path / "DONE").touch()
    assert asked == [100.0, 106.0, 110.0, 126.0]


def test_runs_that_are_tried_again_go_past_max_parallel_or_stop_at_the_first_that_can_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of one sweep are submitted together."""
    three_runs(tmp_path)
    monkeypatch.setattr(runs, "ask_queue", dict)
    groups: list[list[str]] = []

    def resumed(path: Path, command: object) -> Run:
        if path.name == "run-0":
            raise ConfigError("it can't")
        job = Job(hardware=Hardware(Scheduler.slurm))
        return Run(job, [], path.name, "night", RunDir(path), after=1)

    def run_batch(command: object, group: list[Run], sweeps: object) -> Batch:
        groups.append([run.signature for run in group])
        return Batch(0, False)

    monkeypatch.setattr("ringshard.launch.resume.resumed", resumed)
    monkeypatch.setattr("ringshard.launch.resume.run_batch", run_batch)
    with pytest.raises(Exit) as ended:
        runs.retry([tmp_path / "outputs"])
    assert ended.value.exit_code == 2
    assert [sorted(group) for group in groups] == [["run-1", "run-2"]]


def test_members_that_wait_begin_in_the_place_of_those_that_are_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_runs(tmp_path)
    jobs = {f"7_{index}": Queued(f"7_{index}", "PENDING", "None", "x") for index in range(3)}
    monkeypatch.setattr(runs, "ask_queue", lambda: jobs)
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(queue, "call", lambda *command: calls.append(command))
    with suppress(Exit):
        runs.cancel([tmp_path / "outputs"])
    ((name, *cancelled),) = calls
    assert name == "scancel" and sorted(cancelled) == sorted(jobs)
    assert len(list(tmp_path.glob("outputs/runs/*/attempts/1/exit.json"))) == 3


def test_an_output_root_with_runs_in_it_hides_its_sweeps(tmp_path: Path) -> None:
    for name in ("runs/one", "sweeps/night/two", "debug/runs/three"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.json").write_text('{"created": 1}')
    assert {run.name for run in find([tmp_path])} == {"one", "two"}
    assert [run.name for run in find([tmp_path / "debug"])] == ["three"]
    assert [run.name for run in find([tmp_path / "sweeps/night"])] == ["two"]


@pytest.mark.parametrize("accounted", ["CANCELLED by 0", "TIMEOUT", ""])
def test_a_job_cancelled_while_it_waits_is_interrupted_and_started_again(
    accounted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first attempt files tell, later the accounting; one that began and died in the
    job's setup lines, or waited for what never came, was not cancelled."""
    told = f"7_1|{accounted}" if accounted else ""
    (tmp_path / "sacct").write_text(f"#!/bin/sh\necho '{told}'\n")
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    waited, went_on, began = (RunDir(path) for path in three_runs(tmp_path))
    assert state(waited, {}) is State.killed and not is_wanted(State.killed, Retry.failed)
    assert reason(waited, State.killed, {}) == "cancelled while it waited"
    write_json(
        waited.attempt(1) / "submitted.json",
        {"submission": str(tmp_path), "index": 0, "data": "nowhere"},
    )
    assert state(waited, {}) is State.interrupted and "nowhere" in error(waited, State.interrupted)

    went_on.finish(1, Outcome.requeued, {"why": "preempted"})
    cancelled = accounted.startswith("CANCELLED")
    assert state(went_on, {}) is (State.killed if cancelled else State.interrupted)

    (tmp_path / "7_2_0_log.out").touch()
    assert state(began, {}) is State.interrupted


def test_a_run_cancelled_while_the_one_before_it_is_at_work_is_interrupted(tmp_path: Path) -> None:
    first, second, _ = (RunDir(path) for path in three_runs(tmp_path))
    job = Job(launcher=Launcher(after=str(first.path)))
    (second.attempt(1) / "job.yaml").write_text(as_yaml(job))
    at_work = {"7_0": Queued("7_0", "RUNNING", "None", "x")}
    assert state(second, at_work) is State.killed
    first.finish(1, Outcome.killed, {"why": "cancelled"})
    assert state(second, {}) is State.interrupted


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a file to another user")
def test_another_users_run_that_is_at_work_is_interrupted(tmp_path: Path) -> None:
    """The queue tells of one's own jobs alone."""
    attempt = tmp_path / "run/attempts/1"
    attempt.mkdir(parents=True)
    (attempt / "submitted.json").write_text(json.dumps({"submission": str(tmp_path), "index": 0}))
    (tmp_path / "submission.json").write_text('{"job_id": 7}')
    (attempt / "started.json").touch()
    run = RunDir(tmp_path / "run")
    run.record.write_text('{"created": 1}')
    assert state(run, {}) is State.interrupted
    os.chown(run.record, 12345, 12345)
    assert state(run, {}) is State.unknown
    run.finish(1, Outcome.done, {})
    assert state(run, {}) is State.done


def test_a_run_that_is_held_seems_to_wait_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a job with a name like a line of the queue, on one of several clusters."""
    told = "CLUSTER: big\n7_0|PENDING|JobHeldUser|tiny\n8|RUNNING|None|a|b|c"
    (tmp_path / "squeue").write_text(f"#!/bin/sh\necho '{told}'\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    jobs = queue.read_queue()
    assert {job.job_id: job.name for job in jobs.values()} == {"7_0": "tiny", "8": "a|b|c"}
    attempt = tmp_path / "run/attempts/1"
    attempt.mkdir(parents=True)
    (attempt / "submitted.json").write_text(json.dumps({"submission": str(tmp_path), "index": 0}))
    (tmp_path / "submission.json").write_text('{"job_id": 7}')
    run = RunDir(tmp_path / "run")
    assert state(run, jobs) is State.pending
    assert reason(run, State.pending, jobs) == "JobHeldUser"


def test_each_run_of_a_finished_sweep_is_brought_to_mlflow_by_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five seconds each, although they have nothing to send."""
    called: list[list[str]] = []
    monkeypatch.setattr(
        "ringshard.launch.slurm.watch.subprocess.run", lambda c, **_: called.append(c)
    )
    job = Job(tracking=Tracking(uri="sqlite:///x.db"))
    found = [Run(job, [], "x", "night", RunDir(path)) for path in three_runs(tmp_path)]
    synchronize(found)
    (command,) = called
    assert command[-3:] == [str(run.dir.path) for run in found]


def test_a_search_looks_for_ever_at_runs_that_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    jobs = QueueWatch.jobs
    monkeypatch.setattr(QueueWatch, "jobs", lambda w, r: looked.append(len(r)) or jobs(w, r))
    first, second, _ = (RunDir(path) for path in three_runs(tmp_path))
    place = OnSlurm(Command("train", [], []), "standin")
    queued = {f"7_{index}": Queued(f"7_{index}", "RUNNING", "None", "x") for index in range(3)}
    monkeypatch.setattr("ringshard.launch.state.ask_queue", lambda: queued)
    assert place.state(first) is place.state(second) is State.running
    first.finish(1, Outcome.done, {})
    assert place.state(first) is State.done
    place.look()
    assert looked == [1, 2, 1]
