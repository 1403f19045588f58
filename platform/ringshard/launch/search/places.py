"""Where the runs of a search are: on this machine, each under an agent of its own, or on Slurm."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from ringshard.config.compose import Command
from ringshard.config.schema.job import Job
from ringshard.launch.freeze import freeze
from ringshard.launch.housekeeping import NotCancelledError, cancel
from ringshard.launch.identity import Run
from ringshard.launch.prepare import prepare_runs
from ringshard.launch.rundir import RunDir
from ringshard.launch.show import short
from ringshard.launch.start import create_stores
from ringshard.launch.state import Queue, QueueWatch, State, job_id, state
from ringshard.launch.together import start_agent


class Place(Protocol):
    """What a search asks of the machines."""

    waits_for_runs: bool
    """Whether runs end with a search that is stopped; else they go on."""

    def look(self) -> None:
        """Looks once at all that `state` tells of."""

    def state(self, run: RunDir) -> State:
        """Where a run stood at the last look."""

    def prepare(self, run: Run) -> None:
        """What a run needs before it starts; raises ConfigError or ChildError for what is wrong
        with it."""

    def start(self, run: Run) -> None:
        """Starts the next attempt of a run that is prepared; raises ConfigError where no run could
        be started."""

    def interrupt(self, run: RunDir, number: signal.Signals) -> None:
        """Hands a stop request on."""


class Here:
    """Runs on this machine; one that was started by a search which died is watched by its files."""

    waits_for_runs = True

    def __init__(self, command: Command, module: str) -> None:
        self._command, self._module = command, module
        self._agents: dict[Path, subprocess.Popen[bytes]] = {}
        self._watched = QueueWatch()

    def look(self) -> None:
        """Files are looked at when asked of."""

    def state(self, run: RunDir) -> State:
        """See Place."""
        agent = self._agents.get(run.path)
        if agent and agent.poll() is None:
            return State.running
        jobs = self._watched.jobs([run]) if job_id(run) else None
        return state(run, jobs)  # of a run that a search on Slurm began, the queue tells

    def prepare(self, run: Run) -> None:
        """See Place."""
        prepare_runs([run])

    def start(self, run: Run) -> None:
        """See Place."""
        create_stores([run])
        with run.dir.claimed():
            attempt = freeze(run, self._command)
        self._agents[run.dir.path] = start_agent(run, attempt, self._module)

    def interrupt(self, run: RunDir, number: signal.Signals) -> None:
        """See Place."""
        if agent := self._agents.get(run.path):
            agent.send_signal(number)
        else:
            try:
                cancel(run, self.state(run))
            except NotCancelledError as problem:
                print(f"{short(run.path)} {problem}", file=sys.stderr, flush=True)


class OnSlurm:
    """Runs on the cluster, of which the queue is asked once a look, at most."""

    waits_for_runs = False

    def __init__(self, command: Command, module: str) -> None:
        self._command, self._module = command, module
        self._queue = QueueWatch()
        self._jobs: Queue = None
        self._seen: set[RunDir] = set()
        """Those that had not ended when they were asked of."""
        self._missing: list[Job] = []

    def look(self) -> None:
        """See Place."""
        self._jobs = self._queue.jobs(self._seen)

    def state(self, run: RunDir) -> State:
        """See Place."""
        if run not in self._seen:
            self._seen.add(run)
            self.look()
        stands = state(run, self._jobs)
        if not stands.lives:
            self._seen.discard(run)
        return stands

    def prepare(self, run: Run) -> None:
        """See Place; data that are missing are prepared by a job."""
        self._missing = prepare_runs([run], ready_only=True)

    def start(self, run: Run) -> None:
        """See Place."""
        from ringshard.launch.slurm.start import submit_all  # submitit takes a third of a second
        from ringshard.launch.slurm.submission import submitting

        with submitting(Path(run.job.output.root)):
            create_stores([run])
            list(submit_all(self._command, [run], self._missing, self._module))
        self.look()

    def interrupt(self, run: RunDir, number: signal.Signals) -> None:
        """Runs on the cluster go on; a search that is started again finds them."""
