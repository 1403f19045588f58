"""What Slurm may do to a job: the run goes on, or ends, as its user would expect."""

import signal
from pathlib import Path

import pytest
from runs import curve
from slurm.cluster import (
    SLOW,
    STEPS,
    TWO,
    Cluster,
    Submitted,
    ranks,
    ringshard,
    submitted,
    until,
)

from ringshard.tracking.spool import Spool

pytestmark = pytest.mark.slurm
LOW = (*TWO, *SLOW, "hardware.slurm.partition=low", "hardware.slurm.time_minutes=5")
PREEMPT = ("sbatch", "--parsable", "-p", "high", "-N4", "-c4", "-t5", "-o", "/dev/null")


def assert_same_curve(run: Submitted, undisturbed: Path) -> None:
    assert len(curve(run.path)) == STEPS
    for metric in ("train/loss", "train/grad_norm", "val/loss"):
        assert curve(run.path, metric) == curve(undisturbed, metric)


def preempt(slurm: Cluster) -> None:
    slurm.slurm(*PREEMPT, "--wrap", "sleep 1")


def test_a_run_signalled_in_its_first_second_and_preempted_twice_takes_another_curve(
    slurm: Cluster, folder: Path, undisturbed: Path
) -> None:
    run = submitted(folder, *LOW)
    step = ("squeue", "-h", "-s", "-j", run.job, "-o", "%i")
    until(lambda: f"{run.job}.0" in slurm.slurm(*step), 60, "Python starts on the nodes")
    slurm.slurm("scancel", "--signal=USR2", run.job)
    for attempt in (1, 2, 3):
        if attempt > 1:
            run.begins(attempt)
            preempt(slurm)
        told = run.ends(attempt)
        assert (told["outcome"], told["why"]) == ("requeued", "preempted"), told
        slurm.hurry(run.job)
    (folder / "quick").touch()
    assert run.ends(4)["outcome"] == "done" and (run.path / "DONE").exists()
    assert_same_curve(run, undisturbed)
    assert slurm.accounted(run.job) == "COMPLETED"
    assert run.exit(3)["step"] > run.exit(2)["step"] > run.exit(1)["step"] == 0


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
        for _ in range(attempt):
            slurm.slurm(*signal_all)
        told = run.ends(attempt)
        assert told["outcome"] == "requeued" and len(told["signals"]) >= attempt, told
        (folder / what).unlink()
        slurm.hurry(run.job)
    run.begins(3)
    ranks(run)[-1].send_signal(signal.SIGUSR2)
    told = run.ends(3)
    assert (told["outcome"], told["why"]) == ("requeued", "preempted"), told
    slurm.hurry(run.job)
    (folder / "quick").touch()
    assert run.ends(4)["outcome"] == "done"
    assert_same_curve(run, undisturbed)
    steps = [run.exit(attempt)["step"] for attempt in (1, 2, 3)]
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


def test_a_run_at_its_time_limit_comes_back_for_ever_or_takes_another_curve(
    slurm: Cluster, folder: Path, undisturbed: Path
) -> None:
    """Slurm tells it the first time; the second time saving is known to take so long that its own
    clock does, when Slurm would have minutes still to wait. Then it has had its share."""
    slow = ("user.modules=[slow]", "train.hooks={slow: {until: quick, seconds: 3}}")
    limits = ("hardware.slurm.time_minutes=10", "launcher.max_timeouts=1")
    run = submitted(folder, *TWO, *slow, *limits)
    run.begins()
    slurm.slurm("scontrol", "update", f"JobId={run.job}", "EndTime=now+125")
    first = run.ends()
    assert (first["outcome"], first["why"]) == ("requeued", "reached its time limit"), first
    spool = Spool(run.path, 1, "node-9")
    spool.log(first["step"], {"checkpoint/write_s": 75.0})
    spool.close()
    slurm.hurry(run.job, "TimeLimit=5")
    second = run.ends(2)
    given_up = "reached its time limit more than launcher.max_timeouts=1 times"
    assert (second["outcome"], second["why"]) == ("killed", given_up), second
    assert STEPS > second["step"] > first["step"] > 0
    assert "saving takes long: 285 s" in (run.path / "attempts/2/node-0.log").read_text()
    (folder / "quick").touch()
    timed_out = ringshard(folder, "runs", "list", "--state", "timeout").stdout
    assert run.path.name in timed_out
    again = ringshard(folder, "runs", "retry", str(run.path))
    assert again.returncode == 0, again.stderr
    assert run.ends(3)["outcome"] == "done"
    assert_same_curve(run, undisturbed)
