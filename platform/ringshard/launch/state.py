"""Where a run stands, as its directory and the queue tell it; the accounting only refines it."""

import time
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from ringshard.config.schema.launcher import Retry
from ringshard.files import read_json
from ringshard.launch import unbegun
from ringshard.launch.identity import Run
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.slurm import queue
from ringshard.launch.slurm.queue import Queued, SlurmError

_EVERY_S = 15.0


class State(Enum):
    """What a run is doing."""

    new = "never started"
    pending = "waits in the queue"
    running = "at work"
    done = "trained to its end"
    failed = "ended with an error"
    killed = "stopped"
    timeout = "ran out of time, for good"
    pruned = "stopped by its search, for good"
    interrupted = "nobody is at work, and nobody told why"
    unknown = "only the cluster could tell, which does not answer"

    @property
    def lives(self) -> bool:
        """Whether somebody is at work on it, or will be."""
        return self in (State.pending, State.running, State.unknown)


PRUNED = "pruned"
"""How the reason begins where a search stopped a run."""

Queue = Mapping[str, Queued] | None
"""The user's jobs by id; None: the cluster does not answer."""


def ask_queue() -> Queue:
    """The queue, as far as there is one."""
    try:
        return queue.read_queue()
    except SlurmError:
        return None


class QueueWatch:
    """The queue for whoever looks often: files say when it may have changed, and Slurm, which
    forbids to be asked in a loop, is asked then, and every quarter of a minute."""

    def __init__(self) -> None:
        self._jobs: Queue = None
        self._told: dict[Path, tuple[object, ...]] = {}
        """What the files of each run told when the queue was asked."""
        self._next = 0.0

    def jobs(self, runs: Iterable[RunDir]) -> Queue:
        """To be looked at for these runs."""
        told = {run.path: _told(run) for run in runs}
        if not told.items() <= self._told.items() or time.monotonic() > self._next:
            self._jobs, self._next = ask_queue(), time.monotonic() + _EVERY_S
            self._told |= told
        return self._jobs


def _told(run: RunDir) -> tuple[object, ...]:
    attempt = run.last_attempt()
    began = (run.attempt(attempt) / "started.json").exists()
    return attempt, job_id(run), began, run.outcome()


def job_id(run: RunDir) -> str | None:
    """The id in Slurm of the run's newest submission; None: it was never submitted."""
    submitted = _submitted(run)
    return job_of(submitted) if submitted else None


def job_of(submitted: dict[str, Any]) -> str | None:
    """The id in Slurm of the job that a submitted.json tells of; None: sbatch never took it."""
    told = read_json(Path(submitted["submission"]) / "submission.json") or {}
    if told.get("job_id") is None:
        return None
    index = submitted["index"]
    return str(told["job_id"]) if index is None else f"{told['job_id']}_{index}"


def state(run: RunDir, jobs: Queue) -> State:
    """Where a run stands."""
    submitted = _submitted(run)
    if submitted is None:
        return _of_files(run)
    job = job_of(submitted)
    if job is None:  # sbatch never took it
        return State.interrupted
    if jobs is None or (job not in jobs and run.is_anothers()):
        files = _of_files(run)
        unsure = files is State.interrupted or run.outcome() is Outcome.requeued
        return State.unknown if unsure else files
    return _of_job(run, jobs[job]) if job in jobs else _without_job(run, submitted, jobs)


def lives(run: RunDir) -> bool:
    """Whether somebody is at work on a run, or will be; of one submitted, the queue tells."""
    return run.is_running() or (_submitted(run) is not None and state(run, ask_queue()).lives)


def _submitted(run: RunDir) -> dict[str, Any] | None:
    attempt = run.last_attempt()
    return read_json(run.attempt(attempt) / "submitted.json") if attempt else None


def _of_job(run: RunDir, job: Queued) -> State:
    """A job that ends is still in the queue for some seconds."""
    if job.waits:
        return State.pending
    told = run.outcome()
    return State.running if told in (None, Outcome.requeued) else _of_files(run)


def _without_job(run: RunDir, submitted: dict[str, Any], jobs: Queue) -> State:
    """The queue has no job of it: it is over, whatever was meant to follow."""
    job = job_of(submitted) or ""
    if run.outcome() is Outcome.requeued:  # it may also have been killed before it was queued again
        return State.killed if queue.ended([job]).get(job) == "CANCELLED" else State.interrupted
    files = _of_files(run)
    if files is not State.interrupted or unbegun.has_begun(run, submitted, job):
        return files
    return State.interrupted if _waited_in_vain(run, jobs) else State.killed


def _waited_in_vain(run: RunDir, jobs: Queue) -> bool:
    """Whether Slurm gave up a job that had to follow another one."""
    before = unbegun.predecessor(run)
    return bool(unbegun.of_data(run)) or (before is not None and not state(before, jobs).lives)


def _of_files(run: RunDir) -> State:
    outcome = run.outcome()
    if outcome in (None, Outcome.requeued):
        if run.is_running():
            return State.running
        return State.interrupted if run.last_attempt() else State.new
    why = end(run).get("why", "") if outcome is Outcome.killed else ""
    if why.startswith(PRUNED):
        return State.pruned
    return State.timeout if "time limit" in why else State[outcome.name]


def end(run: RunDir) -> dict[str, str]:
    """What exit.json of the newest attempt tells; empty if there is none."""
    return read_json(run.attempt(run.last_attempt()) / "exit.json") or {}


def is_wanted(stands: State, retry: Retry) -> bool:
    """Whether the same command starts a member that stands so."""
    if stands is State.new:
        return True
    if stands in (State.done, State.pruned) or stands.lives:
        return False
    failed = stands in (State.failed, State.interrupted)
    wanted = {Retry.all: True, Retry.failed: failed, Retry.timeout: stands is State.timeout}
    return wanted.get(retry, False)


def split(runs: list[Run], jobs: Queue) -> tuple[list[Run], list[tuple[Run, State]]]:
    """The runs that are to be started, and those that are not, with where they stand."""
    retry = runs[0].job.launcher.retry
    stand = [(run, state(run.dir, jobs)) for run in runs]
    todo = [
        run for run, s in stand if is_wanted(s, retry) or (run.after is not None and not s.lives)
    ]
    return todo, [(run, s) for run, s in stand if run not in todo]
