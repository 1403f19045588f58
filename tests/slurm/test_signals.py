"""What Slurm may do to a job: the run goes on, or ends, as its user would expect."""

from pathlib import Path

import pytest
from runs import curve
from slurm.cluster import SLOW, STEPS, TWO, Cluster, Submitted, ranks, submitted, until

pytestmark = pytest.mark.slurm
LOW = (*TWO, *SLOW, "hardware.slurm.partition=low", "hardware.slurm.time_minutes=5")
PREEMPT = ("sbatch", "--parsable", "-p", "high", "-N4", "-c4", "-t5", "-o", "/dev/null")


def assert_same_curve(run: Submitted, undisturbed: Path) -> None:
    assert len(curve(run.path)) == STEPS
    for metric in ("train/loss", "train/grad_norm", "val/loss"):
        assert curve(run.path, metric) == curve(undisturbed, metric)


def preempt(slurm: Cluster) -> None:
    slurm.slurm(*PREEMPT, "--wrap", "sleep 1")


def test_a_run_preempted_twice_goes_on_as_if_nothing_was(
    slurm: Cluster, folder: Path, undisturbed: Path
) -> None:
    run = submitted(folder, *LOW)
    for attempt in (1, 2):
        run.begins(attempt)
        preempt(slurm)
        told = run.ends(attempt)
        assert (told["outcome"], told["why"]) == ("requeued", "preempted"), told
        slurm.hurry(run.job)
    (folder / "quick").touch()
    assert run.ends(3)["outcome"] == "done" and (run.path / "DONE").exists()
    assert_same_curve(run, undisturbed)
    assert slurm.accounted(run.job) == "COMPLETED"
    assert run.exit(2)["step"] > run.exit(1)["step"] > 0


def test_a_signal_in_the_first_second_loses_nothing(slurm: Cluster, folder: Path) -> None:
    run = submitted(folder, *TWO, *SLOW)
    step = ("squeue", "-h", "-s", "-j", run.job, "-o", "%i")
    until(lambda: f"{run.job}.0" in slurm.slurm(*step), 60, "Python starts on the nodes")
    slurm.slurm("scancel", "--signal=USR2", run.job)
    told = run.ends()
    assert (told["outcome"], told["why"]) == ("requeued", "preempted"), told
    until(lambda: slurm.jobs().get(run.job) == "PENDING", 30, "the job waits again")


def test_a_cancelled_run_saves_and_never_comes_back(slurm: Cluster, folder: Path) -> None:
    run = submitted(folder, *TWO, *SLOW)
    run.begins()
    slurm.slurm("scancel", run.job)
    told = run.ends()
    assert (told["outcome"], told["why"]) == ("killed", "cancelled"), told
    assert told["step"] > 0
    until((run.path / "KILLED").exists, 10, "the run is marked")
    until(lambda: run.job not in slurm.jobs(), 30, "the job is gone")
    assert slurm.accounted(run.job).startswith("CANCELLED") and not ranks(run)


def test_a_run_at_its_time_limit_is_queued_again(slurm: Cluster, folder: Path) -> None:
    limits = ("hardware.slurm.time_minutes=5", "launcher.lead_s=20")
    run = submitted(folder, *TWO, *SLOW, *limits, "train.steps=1000")
    run.begins()
    slurm.slurm("scontrol", "update", f"JobId={run.job}", "EndTime=now+25")
    told = run.ends()
    assert (told["outcome"], told["why"]) == ("requeued", "reached its time limit"), told
    assert told["step"] > 0
