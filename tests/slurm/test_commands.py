"""Commands about runs that wait or are at work: watch, leave, chain, retry, delete, evaluate."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch.commandline import APP, SMALL, run_dirs
from slurm.cluster import ROOT, Cluster, environment, ringshard, until
from slurm.test_sweep import command, ended, paths, states

from ringshard.launch.rundir import RunDir
from ringshard.launch.state import State
from ringshard.launch.table import error

pytestmark = pytest.mark.slurm
ONE = ("hardware=slurm_cpu", "hardware.nodes=1", "hardware.processes_per_node=1")


def hear_ctrl_c() -> None:
    """Also where the tests run in the background of a shell, which ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_whoever_stops_watching_stops_the_run(slurm: Cluster, folder: Path) -> None:
    command(folder, "--dry-run")  # its configuration is written
    argv = [sys.executable, "-c", APP, *SMALL, *ONE, "tracking=jsonl", "launcher.wait=true"]
    env = environment(PYTHONPATH=paths(), STANDIN="wait")
    process = subprocess.Popen(
        argv, cwd=folder, env=env, stdout=subprocess.PIPE, text=True, preexec_fn=hear_ctrl_c
    )
    assert process.stdout
    while "running" not in (line := process.stdout.readline()):
        assert line, "the command ended early"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "they go on" in out
    (run,) = run_dirs(folder)
    assert list(states(folder).values()) == ["running"]
    until(lambda: (run / "attempts/1/seen-0.json").exists(), 60, "the rank listens to signals")

    kept = ringshard(folder, "runs", "delete", "--yes", str(run)).stdout
    assert "kept: it is running" in kept and run.exists()
    refused = command(folder, f"resume={run}")
    assert refused.returncode == 2 and "is running" in refused.stderr
    after = command(folder, *ONE, f"launcher.after={run}", "output.name=next")
    assert after.returncode == 0, after.stderr
    assert "cancelled" in ringshard(folder, "runs", "cancel", str(run)).stdout
    until(lambda: not slurm.jobs(), 60, "a run that waited for a cancelled one is gone")
    assert sorted(states(folder).values()) == ["interrupted", "killed"]
    (follower,) = (path for path in run_dirs(folder) if path != run)
    assert f"launcher.after={run} was not" in error(RunDir(follower), State.interrupted)

    # The stand-in's, if it came to save one: the trainer can't go on from it.
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    again = ringshard(folder, "runs", "retry", str(run))
    assert again.returncode == 0, again.stderr
    until(lambda: (run / "attempts/2/started.json").exists(), 60, "the second attempt begins")
    (job,) = slurm.jobs()
    slurm.slurm("scancel", "--signal=USR2", job)
    until(lambda: slurm.jobs().get(job) == "PENDING", 60, "the job waits again")
    slurm.slurm("scancel", job)
    waited = "a run that is cancelled while it waits to go on is not interrupted"
    until(lambda: states(folder)[run.name] == "killed", 60, waited)


def test_a_run_on_the_cluster_is_evaluated_measured_or_deleted_wrongly(
    slurm: Cluster, folder: Path
) -> None:
    watching = ("launcher.wait=true", "launcher.metric=val/loss", "tracking=mlflow")
    watched = command(folder, *watching)
    assert watched.returncode == 0 and "val/loss=none" in watched.stdout, watched.stderr
    assert "tracking" not in watched.stderr, watched.stderr
    (run,) = run_dirs(folder)
    shipped = json.loads((run / "track/shipped.json").read_text())
    assert "FINISHED" in shipped["told"] and shipped["uri"].startswith("sqlite")
    assert not (run / "attempts/1/shipper.log").exists()  # no node opens a database
    shown = ringshard(folder, "runs", "show", str(run)).stdout
    assert "finished" in shown and "node1" in shown
    assert "rank 0 of 2" in printed(run)
    (run / "attempts/1/rank-1.log").write_text("a word\n")
    assert ringshard(folder, "runs", "logs", str(run), "--rank", "1").stdout == "a word\n"
    assert run.name in ringshard(folder, "runs", "du").stdout
    ringshard(folder, "runs", "pin", str(run))
    assert "kept: it is pinned" in ringshard(folder, "runs", "delete", "--yes", str(run)).stdout
    ringshard(folder, "runs", "pin", "--undo", str(run))
    assert "would be deleted" in ringshard(folder, "runs", "delete", str(run)).stdout
    assert run.exists()
    assert "deleted" in ringshard(folder, "runs", "delete", "--yes", str(run)).stdout
    assert not run.exists() and ended(folder)


def printed(run: Path) -> str:
    """Rank 0 may be on any node."""
    return "".join(log.read_text() for log in run.glob("attempts/1/node-*.log"))


def test_a_preflight_finds_no_link_or_another_version(slurm: Cluster, folder: Path) -> None:
    argv = [sys.executable, str(ROOT / "jobs/preflight.py"), "hardware=slurm_cpu"]
    argv += ["seconds=0.1", "sizes_mib=[0.01, 1]"]
    done = subprocess.run(argv, cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split()[:3] for line in done.stdout.splitlines()]
    for link, processes in {"node": "2", "network": "2", "all": "4"}.items():
        for collective in ("all-gather", "all-reduce"):
            assert rows.count([link, processes, collective]) == 2, done.stdout
    assert re.search(r"link_gbytes_per_s: {node: [\d.]+, network: [\d.]+}", done.stdout)
    assert "node1, node2" in done.stdout
