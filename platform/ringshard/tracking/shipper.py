"""Brings a run's spools to MLflow, exactly once, beside the training and never in its way.

`python -m ringshard.tracking.shipper RUN_DIR ATTEMPT` follows an attempt until it is over and all
has arrived, also where its agent was killed. It may itself be killed at any time: a row that is
sent again is identical, so MLflow keeps one, and what has been acknowledged stands in
`track/shipped.json`. What is left behind is sent by `ringshard track sync`.
"""

import json
import math
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from ringshard.config.schema.reader import read_job
from ringshard.errors import ConfigError
from ringshard.launch.rundir import RunDir
from ringshard.launch.state import lives
from ringshard.tracking import names
from ringshard.tracking.batches import Point, batches
from ringshard.tracking.ledger import Ledger
from ringshard.tracking.remote import RemoteRun
from ringshard.tracking.spool import SpoolFile, spools

_BATCH = 1000
"""Most points that MLflow takes in a request."""
_POLL_S = 2.0
_LONGEST_WAIT_S = 60.0
_QUEUED = "SCHEDULED"
_STATUS = {"done": "FINISHED", "killed": "KILLED", "failed": "FAILED", "requeued": _QUEUED}
"""exit.json's outcome -> status in MLflow."""
_RUNNING = "RUNNING"


class Shipped(NamedTuple):
    """What MLflow knows of a run, once all that is there has arrived."""

    status: str
    lost: int
    """Lines that can never arrive."""


class Shipper:
    """One run directory on its way to one MLflow experiment."""

    def __init__(self, run_dir: Path, attempt: int, uri: str, experiment: str) -> None:
        """`attempt` is the newest one: it decides the status."""
        self._run_dir, self._attempt = run_dir, attempt
        self._target = (uri, experiment)
        self._noted = run_dir / "track" / "shipped.json"
        self._ledger = Ledger.read(self._noted, " ".join(self._target))
        self._remote: RemoteRun | None = None
        self._spools: list[SpoolFile] = []

    @property
    def exit_file(self) -> Path:
        """Appears when the attempt is over, written after the last point."""
        return self._folder(self._attempt) / "exit.json"

    def _folder(self, attempt: int) -> Path:
        return self._run_dir / "attempts" / str(attempt)

    def status(self) -> str:
        """The attempt's state, in MLflow's words, as the run directory tells it.

        Without exit.json it is at work as long as its agent holds the run, or its job is in the
        queue; else it was killed.
        """
        run = RunDir(self._run_dir)
        held = lives(run)  # asked first: exit.json is written before the run is let go
        if self.exit_file.exists():
            outcome = json.loads(self.exit_file.read_text(encoding="utf-8"))["outcome"]
            return _STATUS[outcome]
        return _RUNNING if held and run.last_attempt() == self._attempt else "KILLED"

    def ship(self) -> Shipped:
        """Send all that is there, and how the attempt ended if it is over.

        Raises what the MLflow client raises; what was acknowledged before that is not sent again.
        """
        status = self.status()  # asked first: no point is written after exit.json
        remote = self._open(status)
        for attempt in range(1, self._attempt + 1):
            self._describe(remote, attempt)
        for spool in self._history():
            self._drain(remote, spool)
        if status != _RUNNING and self._ledger.ended < self._attempt:
            if status == _QUEUED:
                remote.wait(status)
            else:
                self._tell_goodput(remote, self._last_sign())
                remote.end(status, self._last_sign())
            self._note(replace(self._ledger, ended=self._attempt))
        return Shipped(status, self._ledger.lost)

    def _tell_goodput(self, remote: RemoteRun, told_in: Path) -> None:
        """Where the time of a run went that is over."""
        from ringshard.report.history import tracked  # Arrow takes half a second

        step, metrics = tracked(RunDir(self._run_dir))
        time_ms = round(told_in.stat().st_mtime * 1000)
        points = [Point(key, value, time_ms, step) for key, value in metrics.items()]
        remote.log(points, self._ledger.lost)

    def _last_sign(self) -> Path:
        """The file that was written last by an attempt that is over."""
        if self.exit_file.exists():
            return self.exit_file
        files = [*self._folder(self._attempt).iterdir(), *(s.path for s in self._history())]
        return max(files, key=lambda file: file.stat().st_mtime)

    def _open(self, status: str) -> RemoteRun:
        if self._remote is None:
            remote = RemoteRun(*self._target, self._run_dir, self._ledger.run_id)
            if remote.run_id != self._ledger.run_id:
                self._note(Ledger(self._ledger.target, remote.run_id))
            if status == _RUNNING:
                remote.reopen()
            self._remote = remote
        return self._remote

    def _describe(self, remote: RemoteRun, attempt: int) -> None:
        files = [self._folder(attempt) / name for name in ("job.yaml", "overrides.json")]
        if attempt in self._ledger.described or not files[0].exists():
            return
        run = RunDir(self._run_dir)
        parameters = names.parameters(run.job(attempt), run.overrides(attempt))
        remote.describe(attempt, parameters, files)
        self._note(replace(self._ledger, described=[*self._ledger.described, attempt]))

    def _history(self) -> list[SpoolFile]:
        listed = set((self._run_dir / "track").glob("spool-*.jsonl"))
        if listed != {spool.path for spool in self._spools}:
            self._spools = spools(self._run_dir)
        return self._spools

    def _drain(self, remote: RemoteRun, spool: SpoolFile) -> None:
        name = spool.path.name
        for batch in batches(spool, self._ledger.offsets.get(name, 0), _BATCH):
            arrived = self._ledger.after(name, batch)
            remote.log(batch.points, arrived.lost)
            self._note(arrived)

    def _note(self, ledger: Ledger) -> None:
        """Write down what MLflow has just acknowledged."""
        self._ledger = ledger
        ledger.write(self._noted)


def follow(shipper: Shipper, patience_s: float) -> bool:
    """Ship until the attempt is over, however long the server is away; True if all has arrived.

    From its end on, it is tried for `patience_s` [s] more.
    """
    failures, until = 0, math.inf
    while time.monotonic() < until:
        is_over = shipper.status() != _RUNNING
        until = min(until, time.monotonic() + patience_s) if is_over else until
        try:
            if shipper.ship().status != _RUNNING:
                _ship_late_points(shipper)
                return True
            failures = 0
        except ConfigError:
            raise
        except Exception as error:  # whatever it is, training goes on and the spool keeps all
            failures += 1
            _report(error, failures)
        if _pause(_wait_s(failures), shipper.exit_file if not is_over else None):
            failures = 0
    return False


def _ship_late_points(shipper: Shipper) -> None:
    """Where the agent was killed, its ranks are so a moment later."""
    if not shipper.exit_file.exists():
        time.sleep(_POLL_S)
        shipper.ship()


def _wait_s(failures: int) -> float:
    jitter = random.uniform(0.5, 1)  # many runs must not come back at the same moment
    return jitter * min(_POLL_S * 2.0**failures, _LONGEST_WAIT_S)


def _pause(seconds: float, exit_file: Path | None) -> bool:
    """Wait; True at once when the exit file appears."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if exit_file and exit_file.exists():
            return True
        time.sleep(0.1)
    return False


def _report(error: Exception, failures: int) -> None:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    print(f"tracking: attempt {failures} to reach MLflow failed: {reason}", file=sys.stderr)


def sync(run_dir: Path, attempt: int, uri: str, experiment: str) -> Shipped:
    """Ship once; raises ConfigError where it can't be done now."""
    try:
        with _lock(run_dir, timeout_s=0):
            return Shipper(run_dir, attempt, uri, experiment).ship()
    except Timeout as error:
        raise ConfigError(f"{run_dir} is being shipped right now: wait until it ends") from error
    except ConfigError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{run_dir} could not be shipped to {uri} ({reason}): try later"
        ) from error


def _lock(run_dir: Path, timeout_s: float) -> FileLock:
    """Held while shipping: MLflow has no unique tags, so two shippers could make two runs."""
    return FileLock(run_dir / "track" / "lock", timeout=timeout_s)


def main() -> int:
    """Follow the attempt named on the command line; SIGTERM ends it at once, Ctrl-C does not."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(10)
    run_dir, attempt = Path(sys.argv[1]), int(sys.argv[2])
    tracking = read_job(run_dir / "attempts" / str(attempt) / "job.yaml").tracking
    try:
        with _lock(run_dir, timeout_s=-1):
            shipper = Shipper(run_dir, attempt, tracking.uri, tracking.experiment)
            return 0 if follow(shipper, tracking.flush_timeout_s) else 1
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
