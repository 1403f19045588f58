"""Searches whose training is on paper."""

import signal
from pathlib import Path

from launch.commandline import QUICK, TEXT

from ringshard.config.compose import Command
from ringshard.launch import freeze
from ringshard.launch.identity import Run
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.search.plan import Plan, plan
from ringshard.launch.search.study import claimed
from ringshard.launch.state import State, state
from ringshard.tracking.spool import Spool

BATCH = "train.global_batch=8,16"


class Paper:
    """A place where training is a formula, and a run is over once it is started; the rest, files
    and states, is real."""

    waits_for_runs = True

    def __init__(self) -> None:
        self.started: list[Path] = []

    def look(self) -> None:
        pass

    def state(self, run: RunDir) -> State:
        return state(run, None)

    def prepare(self, run: Run) -> None:
        pass

    def start(self, run: Run) -> None:
        self.started.append(run.dir.path)
        with run.dir.claimed():
            attempt = freeze.freeze(run, Command("train", [], []))
        spool, job = Spool(run.dir.path, attempt), run.job
        for step in (10, 20):
            spool.log(step, {"val/loss": job.optimizer.lr * job.train.global_batch + 1 / step})
        run.dir.finish(attempt, Outcome.done, {})

    def interrupt(self, run: RunDir, number: signal.Signals) -> None:
        raise AssertionError("there is nothing to interrupt")


def planned_in(folder: Path, *argv: str, options: tuple[str, ...] = ()) -> Plan:
    """A search that was begun, and of which nothing has run; a test stands in `folder`."""
    (folder / "text.txt").write_text(TEXT)
    planned = plan(Command("train", [*options], [*QUICK, "parallelism=single", *argv]))
    with claimed(planned.folder):
        planned.remember()
    return planned
