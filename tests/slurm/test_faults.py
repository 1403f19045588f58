"""Ranks, nodes and daemons that die: the run goes on from its newest checkpoint."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from runs import curve
from slurm.cluster import SLOW, TWO, Cluster, Submitted, ranks, ringshard, submitted, until
from slurm.test_signals import assert_same_curve
from tracking.conftest import RunFolder
from tracking.server import Server
from tracking.shipped import history, remote

from ringshard.checkpoint.directory import committed

pytestmark = pytest.mark.slurm


def saved(run: Submitted) -> bool:
    return bool(committed(run.path / "checkpoints"))


def test_a_killed_rank_ends_the_job_or_trains_a_step_otherwise(
    slurm: Cluster, folder: Path, undisturbed: Path
) -> None:
    """torchrun starts the ranks of both nodes again in place."""
    run = submitted(folder, *TWO, *SLOW)
    until(lambda: saved(run), 120, "a checkpoint")
    ranks(run)[-1].kill()
    (folder / "quick").touch()
    assert run.ends()["outcome"] == "done"
    assert len(list((run.path / "track").glob("spool-1.*-rank0.jsonl"))) == 2
    assert_same_curve(run, undisturbed)
    assert slurm.accounted(run.job) == "COMPLETED"


def test_a_lost_node_and_a_restarted_slurmctld_lose_the_run(
    slurm: Cluster, folder: Path, undisturbed: Path
) -> None:
    run = submitted(folder, *TWO, *SLOW)
    until(lambda: saved(run), 120, "a checkpoint")
    slurm.kill("slurmctld")
    slurm.up()
    slurm.kill("node2")
    slurm.slurm("scontrol", "update", "NodeName=node2", "State=DOWN", "Reason=lost")
    until(lambda: slurm.jobs().get(run.job) == "PENDING", 60, "the job waits again")
    (folder / "quick").touch()
    slurm.up()
    slurm.hurry(run.job)
    assert run.ends(2)["outcome"] == "done"
    assert_same_curve(run, undisturbed)


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    """An MLflow server that all nodes reach."""
    (folder / "server").mkdir()
    found = Server(folder / "server")
    found.start()
    yield found
    found.kill()


def belongs(process: psutil.Process, run: Submitted) -> bool:
    """Whether it is an agent of the job, or was started by one."""
    with suppress(psutil.Error):
        words = process.cmdline()
        is_agent = any("submitit" in word for word in words)
        if is_agent:
            return process.environ().get("SLURM_JOB_ID") == run.job
        return str(run.path) in words
    return False


def tracked(folder: Path, uri: str, experiment: str) -> tuple[Submitted, RunFolder]:
    """A run at work of which MLflow knows."""
    where = ("tracking.backend=mlflow", f"tracking.uri={uri}", f"tracking.experiment={experiment}")
    run = submitted(folder, *TWO, *SLOW, *where, "train.steps=1000")
    run.begins()
    until((run.path / "track/shipped.json").exists, 60, "MLflow hears of the run")
    there = RunFolder.of(run.path, uri, experiment)
    assert remote(there).info.status == "RUNNING"
    return run, there


def test_a_cancelled_or_killed_job_is_running_in_mlflow_for_ever(
    slurm: Cluster, folder: Path, server: Server
) -> None:
    uri = f"http://127.0.0.1:{server.port}"
    cancelled, first = tracked(folder, uri, "cancelled")
    slurm.slurm("scancel", cancelled.job)
    until(lambda: remote(first).info.status == "KILLED", 120, "MLflow hears of the end")
    assert remote(first).data.tags["ringshard.state"] == "killed: cancelled"
    killed, second = tracked(folder, uri, "killed")
    for process in [one for one in psutil.process_iter() if belongs(one, killed)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    until(lambda: killed.job not in slurm.jobs(), 60, "the job is gone")
    assert remote(second).info.status == "RUNNING"
    reaped = ringshard(folder, "track", "reap", "outputs").stdout
    assert f"{killed.path.name}: KILLED (interrupted: FAILED)" in reaped
    assert cancelled.path.name not in reaped
    assert remote(second).info.status == "KILLED"
    assert dict(history(second)) == curve(killed.path)


def test_training_that_fails_is_completed_for_slurm_or_queued_for_ever(
    slurm: Cluster, folder: Path
) -> None:
    """It is queued again as often as was asked for, as long as it saves something new."""
    wrong = ("user.modules=[wrong]", "train.hooks={wrong: {}}", "launcher.max_restarts=0")
    saves = ("checkpoint.every=1", "checkpoint.asynchronous=false")
    run = submitted(folder, *TWO, *wrong, *saves, "launcher.max_crashes=1")
    again = run.ends()
    assert (again["outcome"], again["why"]) == ("requeued", "crashed"), again
    slurm.hurry(run.job)
    told = run.ends(2)
    assert told["outcome"] == "failed" and "the lamp went out" in told["error"], told
    assert told["why"] == "crashed more than launcher.max_crashes=1 times"
    assert told["step"] > again["step"] > 0
    assert slurm.accounted(run.job) == "FAILED"
    shown = ringshard(folder, "runs", "show", str(run.path)).stdout
    assert "launcher.max_crashes=1 times: rank" in shown and "failed" in shown
    assert not list((run.path / "attempts").glob("3"))


def test_a_cluster_without_accounting_or_out_of_reach_hides_how_a_run_stands(
    slurm: Cluster, folder: Path
) -> None:
    run = submitted(folder, *TWO)
    slurm.kill("slurmdbd")
    until(lambda: run.exit(), 120, "the run ends")
    until(lambda: not slurm.jobs(), 30, "the queue is empty")
    assert "done" in ringshard(folder, "runs", "list", str(run.path)).stdout
    slurm.kill("slurmctld")
    assert "done" in ringshard(folder, "runs", "list", str(run.path)).stdout
    assert len(curve(run.path)) > 0
