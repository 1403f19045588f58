"""Several members at once on this machine, each under an agent in a process of its own.

`python -m ringshard.launch.together RUN_DIR ATTEMPT MODULE` is such an agent; what it prints is in
the attempt's agent.log.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ringshard import child
from ringshard.config.compose import Command
from ringshard.config.schema.launcher import OnFailure
from ringshard.files import read_json
from ringshard.launch.agent import Ended, run_attempt
from ringshard.launch.freeze import begun, freeze
from ringshard.launch.identity import Run
from ringshard.launch.rundir import Outcome, RunDir, RunningError
from ringshard.launch.state import ask_queue, is_wanted, state
from ringshard.launch.stop import StopRequests, blocked, stop_requests

_TICK_S = 0.1


@dataclass
class _Member:
    """One that is at work."""

    run: Run
    attempt: int
    agent: "subprocess.Popen[bytes]"
    told: int = 0
    """Stop requests that were handed on."""


def run_together(
    command: Command, runs: list[Run], module: str, limit: int
) -> Iterator[tuple[Run, Ended | str]]:
    """Runs with how they ended, or why they did not begin, in the order in which they end.

    A stop request goes on to all that are at work; none begins after it.
    """
    waiting, working = list(runs), list[_Member]()
    with stop_requests() as stop:
        while working or (waiting and not stop):
            while waiting and len(working) < limit and not stop:
                begun = _begin(command, waiting.pop(0), module)
                if isinstance(begun, _Member):
                    working.append(begun)
                else:
                    yield begun
            for member in [one for one in working if one.agent.poll() is not None]:
                working.remove(member)
                ended = _ended(member, stop)
                if ended.stopped or (ended.outcome is Outcome.failed and _stops(member.run)):
                    waiting.clear()
                yield member.run, ended
            _hand_on(working, stop)
            time.sleep(_TICK_S)


def _stops(run: Run) -> bool:
    return run.job.launcher.on_failure is OnFailure.stop


def _begin(command: Command, run: Run, module: str) -> _Member | tuple[Run, str]:
    stands = state(run.dir, ask_queue())
    if not is_wanted(stands, run.job.launcher.retry):
        return run, stands.name
    try:
        with run.dir.claimed():
            attempt = freeze(run, command)
    except RunningError:
        return run, "running"
    return _Member(run, attempt, start_agent(run, attempt, module))


def start_agent(run: Run, attempt: int, module: str) -> "subprocess.Popen[bytes]":
    """The agent of a frozen attempt, in a session of its own."""
    with (run.dir.attempt(attempt) / "agent.log").open("wb") as log, blocked():
        return subprocess.Popen(
            child.command(__name__, str(run.dir.path), str(attempt), module),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _hand_on(working: list[_Member], stop: StopRequests) -> None:
    for member in working:
        for number, _ in stop.came[member.told :]:
            member.agent.send_signal(number)
        member.told = len(stop.came)


def _ended(member: _Member, stop: StopRequests) -> Ended:
    told = read_json(member.run.dir.attempt(member.attempt) / "exit.json")
    stopped = 128 + stop.first if stop else 0
    if told is None:  # its agent was killed
        return Ended(Outcome.failed, 1, stopped)
    outcome = Outcome[told["outcome"]]
    if outcome is Outcome.killed and not member.run.dir.why_stopped(member.attempt):
        stopped = told["rc"]  # nobody cancelled this one alone
    return Ended(outcome, told["rc"], stopped)


def main() -> int:
    """See the module's docstring."""
    run, attempt, module = RunDir(Path(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
    with run.claimed():
        begun(run.attempt(attempt))
        return run_attempt(run, attempt, run.job(attempt), module).code


if __name__ == "__main__":
    sys.exit(main())
