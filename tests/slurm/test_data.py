"""Data on a cluster: prepared once, by a job, and never by ranks."""

from pathlib import Path

import pytest
import yaml
from launch.commandline import run_dirs
from slurm.cluster import Cluster, ringshard, until
from slurm.test_sweep import command, ended, states

from ringshard.launch.state import State

pytestmark = pytest.mark.slurm
SWEEP = ("-m", "sweep.name=night", "train.seed=1,2", "hardware.nodes=1")


def test_missing_data_are_prepared_twice_or_on_this_machine(slurm: Cluster, folder: Path) -> None:
    done = command(folder, *SWEEP)
    assert done.returncode == 0 and "Preparing" not in done.stderr, done.stderr
    until(lambda: ended(folder), 120, "the sweep ends")
    assert set(states(folder).values()) == {"done"}
    jobs = [yaml.safe_load((r / "attempts/1/job.yaml").read_text()) for r in run_dirs(folder)]
    assert len({job["data"]["digest"] for job in jobs}) == 1 and jobs[0]["data"]["digest"]
    again = command(folder, "-m", "sweep.name=night", "train.seed=3", "hardware.nodes=1")
    assert again.returncode == 0, again.stderr
    assert len(list((folder / "outputs/slurm").glob("data-*/*_submission.sh"))) == 1
    scripts = [s.read_text() for s in (folder / "outputs/slurm").glob("tiny-*/*submission.sh")]
    assert sum("afterok" in script for script in scripts) == 1


def test_data_that_cannot_be_prepared_let_the_runs_wait_for_ever(
    slurm: Cluster, folder: Path
) -> None:
    (folder / "empty.txt").touch()
    done = command(folder, *SWEEP, "data.path=empty.txt")
    assert done.returncode == 0, done.stderr
    until(lambda: not slurm.jobs(), 60, "the queue is empty")
    assert set(states(folder).values()) == {State.interrupted.name}
    listed = ringshard(folder, "runs", "list", "outputs").stdout
    assert listed.count("has no text: give another corpus") == 2
