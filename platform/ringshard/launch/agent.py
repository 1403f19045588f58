"""One attempt of a run on this machine, from its frozen job to its marker."""

import importlib
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from ringshard.config.schema.debug import DebugMode
from ringshard.config.schema.job import Job
from ringshard.launch import show, torchrun, tracker
from ringshard.launch.environment import in_environment, rank_environment
from ringshard.launch.failure import first_failure, has_failed
from ringshard.launch.orphans import adopt_orphans, kill_descendants
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.show import short
from ringshard.launch.stop import StopRequests, stop_requests


@dataclass(frozen=True)
class Ended:
    """How an attempt ended."""

    outcome: Outcome
    code: int
    """Exit code of the command: 0 done, 1 failed, 128 + signal killed."""
    stopped: int = 0
    """128 + the signal that asked for an end, after which nothing further starts; 0: none did."""


def run_attempt(run: RunDir, attempt: int, job: Job, module: str = "ringshard.train") -> Ended:
    """Runs a frozen attempt in the foreground and leaves exit.json, a marker and no process behind.

    `module` is what the ranks run: `python -m MODULE RUN_DIR ATTEMPT`.
    """
    adopt_orphans()
    work = _run_here if job.debug.mode is DebugMode.one else _run_ranks
    with stop_requests() as stop:
        tracking = tracker.start(job, run.path, attempt)
        code = 1
        try:
            code = work(run.path, attempt, job, module, stop)
        finally:  # also where debug=on lets an exception through to the debugger
            kill_descendants(spared=tracking.spared)
            ended = _judge(run, attempt, code, stop)
            _record(run, attempt, ended, code, stop)
            if not tracking.end(job.tracking.flush_timeout_s, stop):
                _say(show.unsent(run))
    return replace(ended, stopped=_ends_command(run, attempt, stop))


def _ends_command(run: RunDir, attempt: int, stop: StopRequests) -> int:
    """128 + the signal where one was meant for the whole command: whoever cancels a run notes so,
    and signals once."""
    own = 1 if run.why_stopped(attempt) else 0
    return 128 + stop.first if len(stop.came) > own else 0


def _record(run: RunDir, attempt: int, ended: Ended, code: int, stop: StopRequests) -> None:
    signals = [number.name for number, _ in stop.came]
    details = {"rc": ended.code, "ranks_rc": code, "signals": signals, "time": time.time()}
    if ended.outcome is Outcome.killed and (why := run.why_stopped(attempt)):
        details["why"] = why
    try:
        run.finish(attempt, ended.outcome, details)
    except OSError as error:
        _say(
            f"that the run is {ended.outcome.value} can't be written to {short(run.path)}"
            f" ({error.strerror}): mend the disk, and resume it"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _run_ranks(path: Path, attempt: int, job: Job, module: str, stop: StopRequests) -> int:
    """Waits for torchrun; a stop request goes on to the ranks, a second one ends them."""
    ranks = torchrun.start(job, path, attempt, module)
    if job.debug.rank is not None:
        _say(f"rank {job.debug.rank} waits for a debugger on 127.0.0.1:{job.debug.port}")
    told: set[int] = set()
    while ranks.poll() is None:
        if stop.urgent(job.launcher.stop_timeout_s):
            ranks.kill()
        elif stop:
            if not told:
                _say("\nstopping after this step (again: at once)")
            torchrun.tell_ranks(ranks, told)
        try:
            ranks.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    return ranks.returncode


def _run_here(path: Path, attempt: int, job: Job, module: str, stop: StopRequests) -> int:
    """debug=on: the trainer in this process, so that breakpoint() and an IDE work."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with in_environment(rank_environment(job.hardware)):
            importlib.import_module(f"{module}.__main__").main(path, attempt)
    except KeyboardInterrupt:
        stop.remember(signal.SIGINT, None)
    finally:
        signal.signal(signal.SIGINT, handler)
    return 0


def _judge(run: RunDir, attempt: int, code: int, stop: StopRequests) -> Ended:
    """A rank's failure counts even where an end was asked for, unless the agent killed them all."""
    result = run.result(attempt).get("outcome")
    if result == "finished" and code == 0:
        return Ended(Outcome.done, 0)
    if stop and (code == -signal.SIGKILL or not has_failed(run.attempt(attempt))):
        return Ended(Outcome.killed, 128 + stop.first)
    if result == "stopped" and code == 0:  # somebody told the ranks themselves
        return Ended(Outcome.killed, 128 + signal.SIGTERM)
    return Ended(Outcome.failed, 1)


def explain(run: RunDir, attempt: int) -> str:
    """Why an attempt failed: what the user reads last."""
    return first_failure(run.attempt(attempt)).text()
