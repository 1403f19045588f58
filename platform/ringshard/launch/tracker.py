"""What tracks a run beside its ranks, in processes of its own: neither agent nor ranks import
it."""

import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ringshard import child
from ringshard.config.schema.job import Job
from ringshard.config.schema.tracking import Tracking
from ringshard.errors import ConfigError
from ringshard.files import write_json
from ringshard.launch.environment import rank_environment, told
from ringshard.launch.stop import StopRequests, blocked

Process = subprocess.Popen[bytes]


def create_store(tracking: Tracking) -> None:
    """Makes the database and the experiment; raises ConfigError where MLflow refuses."""
    if not tracking.backend.ships:
        return
    try:
        child.ask("ringshard.tracking.store", tracking.uri, tracking.experiment)
    except child.ChildError as error:
        raise ConfigError(
            f"tracking.uri={tracking.uri} cannot be used ({error.last_line}): take another one"
        ) from error


@dataclass(frozen=True)
class Tracker:
    """The trackers of an attempt on one node."""

    shipper: Process | None
    """Carries the spools to MLflow; on the first node alone."""

    @property
    def spared(self) -> list[int]:
        """Processes that outlive the ranks; the others end with them."""
        return [self.shipper.pid] if self.shipper else []

    def end(self, patience_s: float, stop: StopRequests) -> bool:
        """Waits for the last points; false if they did not make it in time (the spool keeps them),
        or if another stop request comes meanwhile."""
        if self.shipper is None:
            return True
        until, asked = time.monotonic() + patience_s, len(stop.came)
        while time.monotonic() < until and len(stop.came) == asked:
            try:
                return self.shipper.wait(0.05) == 0
            except subprocess.TimeoutExpired:
                continue
        self.shipper.kill()
        self.shipper.wait()
        return False


def start(
    job: Job, run_dir: Path, attempt: int, node: int = 0, on_cluster: bool = False
) -> Tracker:
    """Starts the trackers of a node of the job; Ctrl-C does not reach them.

    on_cluster: an sqlite file, on a disk that many machines share, is left to the submit host.
    """
    folder = run_dir / "attempts" / str(attempt)
    if node == 0:
        _note_environment(job, folder)
    if job.tracking.backend.records and job.tracking.system_every_s:
        _start("system", folder, f"system-{node}.log", run_dir, attempt, node)
    is_left = on_cluster and job.tracking.ships_to_file
    ships = job.tracking.backend.ships and node == 0 and not is_left
    return Tracker(_start("shipper", folder, "shipper.log", run_dir, attempt) if ships else None)


def _note_environment(job: Job, folder: Path) -> None:
    with suppress(OSError):  # a full disk stops no training
        here = told({**os.environ, **rank_environment(job.hardware)})
        write_json(folder / "environment.json", here)


def _start(module: str, folder: Path, log: str, *arguments: object) -> Process:
    ends_with_agent = partial(child.die_with, os.getpid()) if module == "system" else None
    with (folder / log).open("wb") as out, blocked():
        return subprocess.Popen(
            child.command(f"ringshard.tracking.{module}", *map(str, arguments)),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=child.environment(),
            start_new_session=True,
            preexec_fn=ends_with_agent,
        )
