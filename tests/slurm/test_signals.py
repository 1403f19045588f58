"""What Slurm may do to a job: the run goes on, or ends, as its user would expect."""

import signal
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


DAWDLE = """
import time
from pathlib import Path

from ringshard.registry import register


@register("hook", "dawdle")
class Dawdle:
    def __init__(self):
        self.wrapped = False

    def after_step(self, trainer, last):
        if not self.wrapped:
            self.wrapped = True
            named = {type(hook).__name__: hook for hook in trainer.hooks}
            self.slow(named["Evaluate"], "_evaluate", Path("evaluating"))
            self.slow(named["Save"].saver, "start", Path("saving"))

    def slow(self, owner, name, asked):
        act = getattr(owner, name)

        def slowly(*given):
            result = act(*given)
            if asked.exists():
                asked.with_suffix(".now").touch()
                time.sleep(1)
            return result

        setattr(owner, name, slowly)
"""


def test_a_signal_while_a_run_saves_evaluates_or_twice_or_to_one_rank_loses_a_step(
    slurm: Cluster, folder: Path, undisturbed: Path
) -> None:
    (folder / "dawdle.py").write_text(DAWDLE)
    hooks = "train.hooks={slow: {until: quick}, dawdle: {}}"
    run = submitted(folder, *TWO, "user.modules=[slow,dawdle]", hooks)
    signal_all = ("scancel", "--signal=USR2", run.job)
    for attempt, what in enumerate(("saving", "evaluating"), start=1):
        (folder / what).touch()
        until((folder / f"{what}.now").exists, 240, f"attempt {attempt} is {what}")
        slurm.slurm(*signal_all)
        assert run.ends(attempt)["outcome"] == "requeued"
        (folder / what).unlink()
        slurm.hurry(run.job)
    run.begins(3)
    slurm.slurm(*signal_all)
    slurm.slurm(*signal_all)
    assert (told := run.ends(3))["outcome"] == "requeued" and len(told["signals"]) == 2, told
    slurm.hurry(run.job)
    run.begins(4)
    ranks(run)[-1].send_signal(signal.SIGUSR2)
    told = run.ends(4)
    assert (told["outcome"], told["why"]) == ("requeued", "preempted"), told
    slurm.hurry(run.job)
    (folder / "quick").touch()
    assert run.ends(5)["outcome"] == "done"
    assert_same_curve(run, undisturbed)
    steps = [run.exit(attempt)["step"] for attempt in (1, 2, 3, 4)]
    assert steps == sorted(steps) and steps[0] > 0, steps


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
