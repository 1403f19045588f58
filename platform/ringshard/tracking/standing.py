"""Where a run stands, in MLflow's words, as its directory and the queue tell it."""

import time
from collections.abc import Callable
from typing import NamedTuple

from ringshard.files import read_json
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.slurm.queue import ended
from ringshard.launch.state import Queue, State, ask_queue, job_id, state

RUNNING, QUEUED, KILLED = "RUNNING", "SCHEDULED", "KILLED"
_STATUS = {
    Outcome.done: "FINISHED",
    Outcome.killed: KILLED,
    Outcome.failed: "FAILED",
    Outcome.requeued: QUEUED,
}


class Standing(NamedTuple):
    """What MLflow is told."""

    status: str
    """One of MLflow's: RUNNING, SCHEDULED, FINISHED, FAILED, KILLED."""
    state: str
    """More exactly, and why: `requeued: preempted`."""

    @property
    def is_over(self) -> bool:
        """Whether this attempt does nothing any more."""
        return self.status != RUNNING

    @property
    def is_final(self) -> bool:
        """Whether nothing will follow by itself."""
        return self.status not in (RUNNING, QUEUED)


def standing(run: RunDir, attempt: int, queue: Callable[[], Queue] = ask_queue) -> Standing:
    """Where the newest attempt stands; the queue is asked if need be.

    Without exit.json it is at work as long as its agent holds the run, or its job is in the queue;
    else it was killed. What only a cluster could tell that does not answer counts as it was.
    """
    stands = State.running if run.is_running() else state(run, queue())
    end = read_json(run.attempt(attempt) / "exit.json")  # second: it is written before letting go
    if end:
        outcome = Outcome[end["outcome"]]
        gone = outcome is Outcome.requeued and not stands.lives
        return _interrupted(run) if gone else Standing(_STATUS[outcome], _in_words(end))
    if not stands.lives or run.last_attempt() != attempt:
        return _interrupted(run)
    waits = stands is State.pending
    return Standing(QUEUED, "queued") if waits else Standing(RUNNING, State.running.name)


def _interrupted(run: RunDir) -> Standing:
    """Nobody is at work, and nobody told why; the accounting may know."""
    job = job_id(run)
    accounted = ended([job]).get(job) if job else None
    name = State.interrupted.name
    return Standing(KILLED, f"{name}: {accounted}" if accounted else name)


def _in_words(end: dict[str, str]) -> str:
    why = end.get("why", "")
    return end["outcome"] if why in ("", "finished") else f"{end['outcome']}: {why}"


def clock(seconds: float) -> str:
    """A time as tags hold it: UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
