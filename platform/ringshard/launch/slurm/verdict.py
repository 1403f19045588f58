"""What comes after an attempt on Slurm: the end, or the queue again. Pure functions."""

from dataclasses import dataclass

from ringshard.config.schema.launcher import Launcher
from ringshard.launch.rundir import Outcome


@dataclass(frozen=True)
class Past:
    """What the attempts of this submission came to, the present one included."""

    crashes: int
    timeouts: int
    progressed: bool
    """Whether the present one has saved a step that none before it had."""


@dataclass(frozen=True)
class Verdict:
    """How an attempt ends, and why, in words."""

    outcome: Outcome
    why: str


PREEMPTED = "preempted"
TIMEOUT = "reached its time limit"
CRASHED = "crashed"
CANCELLED = "cancelled"


def judge(reason: str | None, finished: bool, past: Past, launcher: Launcher) -> Verdict:
    """The verdict on an attempt that ended.

    reason: why it was asked to stop (PREEMPTED, TIMEOUT or CANCELLED), None if it was not;
    finished: whether it trained to its end.
    """
    if finished:
        return Verdict(Outcome.done, "finished")
    if reason == CANCELLED:
        return Verdict(Outcome.killed, CANCELLED)
    if reason == PREEMPTED:
        return Verdict(Outcome.requeued, PREEMPTED)
    if reason == TIMEOUT:
        return _after_timeout(past, launcher)
    return _after_crash(past, launcher)


def _after_timeout(past: Past, launcher: Launcher) -> Verdict:
    limit = launcher.max_timeouts
    if not past.progressed:
        return Verdict(
            Outcome.killed, f"{TIMEOUT} with nothing new saved: give it more time, or save oftener"
        )
    if past.timeouts > limit:
        return Verdict(Outcome.killed, f"{TIMEOUT} more than launcher.max_timeouts={limit} times")
    return Verdict(Outcome.requeued, TIMEOUT)


def _after_crash(past: Past, launcher: Launcher) -> Verdict:
    limit = launcher.max_crashes
    if not past.progressed:
        return Verdict(Outcome.failed, CRASHED)
    if past.crashes > limit:
        return Verdict(Outcome.failed, f"{CRASHED} more than launcher.max_crashes={limit} times")
    return Verdict(Outcome.requeued, CRASHED)


def refuse(crashes: int, in_vain: int, launcher: Launcher) -> Verdict | None:
    """Why a job that Slurm has queued again by itself must not begin; None: it may.

    in_vain: attempts in a row that left no word and nothing new saved; one may have had bad luck
    with its node.
    """
    limit = launcher.max_crashes
    if in_vain > 1:
        return Verdict(
            Outcome.failed, f"{CRASHED} or lost a node {in_vain} times with nothing new saved"
        )
    if crashes > limit:
        return Verdict(Outcome.failed, f"{CRASHED} more than launcher.max_crashes={limit} times")
    return None
