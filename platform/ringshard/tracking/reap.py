"""Closes in MLflow what died with its node: nobody was left there to tell how it ended."""

import socket
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ringshard.errors import ConfigError
from ringshard.files import read_json
from ringshard.launch.rundir import RunDir
from ringshard.launch.state import Queue, State, ask_queue, job_id, state
from ringshard.report.runs import Run
from ringshard.tracking import names, shipper
from ringshard.tracking import sweep as sweeps
from ringshard.tracking.ledger import Ledger


class Judged(NamedTuple):
    """What came of a run."""

    closed: bool
    why: str


def reap(
    runs: list[Run], lost_hosts: Collection[str], ask: Callable[[], Queue] = ask_queue
) -> Iterator[tuple[Path, Judged]]:
    """Closes those that are over while MLflow says otherwise, and says why others were left.

    lost_hosts: machines that are known to be gone; what they were at work on is over.
    """
    queue = cache(ask)  # one question for all of them
    for run in runs:
        try:
            judged = _reap(run, queue, lost_hosts)
        except ConfigError as error:  # of one run; the others are closed all the same
            judged = Judged(False, str(error))
        if judged:
            yield run.dir.path, judged
    yield from _sweeps(runs, queue, lost_hosts)


def _sweeps(
    runs: list[Run], queue: Callable[[], Queue], lost_hosts: Collection[str]
) -> Iterator[tuple[Path, Judged]]:
    """Closes the sweeps of runs: a member that was cancelled while it waited told nobody."""
    for sweep in sweeps_of(runs):
        everyone = (RunDir(file.parent) for file in sweep.glob("*/run.json"))
        if any(_unsure(one, queue, lost_hosts) for one in everyone):
            continue
        try:
            stands = sweeps.tell_all(sweep, queue)
        except ConfigError as error:
            yield sweep, Judged(False, str(error))
        else:
            if stands:
                yield sweep, Judged(True, f"{stands.status} ({stands.state})")


def sweeps_of(runs: list[Run]) -> list[Path]:
    """The folders of the sweeps that runs are of."""
    return list(dict.fromkeys(folder for run in runs if (folder := names.sweep(run.dir.path))))


def _reap(run: Run, queue: Callable[[], Queue], lost_hosts: Collection[str]) -> Judged | None:
    """None: MLflow knows the truth already, or nothing of the run."""
    if (ledger := Ledger.noted(run.dir.path)) is None:
        return None
    if unsure := _unsure(run.dir, queue, lost_hosts):
        return Judged(False, f"left as it is, {unsure}")
    stands = shipper.close(run.dir.path, run.attempt, ledger.uri, ledger.experiment, queue)
    return Judged(True, f"{stands.status} ({stands.state})") if stands else None


def _unsure(run: RunDir, queue: Callable[[], Queue], lost_hosts: Collection[str]) -> str | None:
    """Why it can't be known from here whether the run still goes on; None: it can."""
    attempt = run.attempt(run.last_attempt())
    if (attempt / "exit.json").exists() and job_id(run) is None:
        return None
    if run.is_running():
        return "somebody is at work on it"
    if job_id(run) is not None:
        return _unsure_of_job(run, queue)
    host = (read_json(attempt / "started.json") or {}).get("host")
    if host not in (None, socket.gethostname(), *lost_hosts):
        return f"only {host} can tell whether it runs there: reap it there, or --lost-host {host}"
    return None


def _unsure_of_job(run: RunDir, queue: Callable[[], Queue]) -> str | None:
    if run.is_anothers():
        return "it is another user's, whose jobs are not listed here"
    stands = state(run, queue())
    if stands is State.unknown:
        return "only the cluster could tell, which does not answer"
    return f"it is {stands.name}" if stands.lives else None
