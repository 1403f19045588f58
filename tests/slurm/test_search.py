"""A search on the cluster, by the command that searches on a laptop."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch.commandline import APP, SMALL, run_dirs
from slurm.cluster import Cluster, environment, ringshard, until
from slurm.test_sweep import command, paths, prepare, states

pytestmark = pytest.mark.slurm
SEARCH = (
    *("search=random", "search.seed=4", "optimizer.lr=0.01,0.9", "search.trials=4"),
    *("search.pruner_trials=1", "sweep.name=night", "hardware.nodes=1"),
    "+hardware.env.STANDIN='curve:go'",
)
"""The seed tries 0.01 once and then 0.9, which is worse."""


def test_a_search_that_was_killed_doubles_its_jobs_or_lets_a_bad_trial_run(
    slurm: Cluster, folder: Path
) -> None:
    prepare(folder)
    fixed = ("hardware=slurm_cpu", "tracking=jsonl", "hardware.processes_per_node=1")
    argv = [sys.executable, "-c", APP, *SMALL, *fixed, "train.global_batch=8", *SEARCH]
    options = {"cwd": folder, "env": environment(PYTHONPATH=paths()), "text": True}
    killed = subprocess.Popen(argv, stdout=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    until(lambda: list(folder.rglob("spool-*-rank0.jsonl")), 120, "the first trial trains")
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert len(slurm.jobs()) == 1
    (folder / "go-0.01").touch()
    done = subprocess.run(argv, capture_output=True, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 trials: 1 done, 3 pruned" in done.stdout, done.stdout
    assert "optimizer.lr=0.01" in done.stdout.partition("train    ")[2]
    assert sorted(states(folder).values()) == ["done", "pruned"] and not slurm.jobs()
    assert not list(folder.rglob("attempts/2"))
    worse = next(run for run in run_dirs(folder) if not (run / "DONE").exists())
    told = json.loads((worse / "attempts/1/exit.json").read_text())
    assert told["outcome"] == "killed" and told["why"].startswith("pruned: val/loss="), told
    compared = ringshard(folder, "compare", "outputs/sweeps/night", "--metric", "val/loss")
    assert compared.returncode == 0 and "pruned" in compared.stdout, compared.stderr
    skipped = ringshard(folder, "runs", "retry", "outputs/sweeps/night")
    assert skipped.stdout.count("skipped") == 2


def test_another_sweeper_gets_no_results_from_the_cluster(slurm: Cluster, folder: Path) -> None:
    prepare(folder)
    climber = ("hydra/sweeper=climber", "hydra.sweeper.start=0.01", "hydra.sweeper.rounds=1")
    asked = ("launcher.wait=true", "launcher.metric=val/loss", "+hardware.env.STANDIN='curve:'")
    done = command(folder, *climber, *asked, "hardware.nodes=1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "climber: best 0.01 with 0.010" in done.stdout, done.stdout
    assert len(list((folder / "outputs/slurm").glob("tiny-*/*submission.sh"))) == 1
