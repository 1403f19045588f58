"""Brings a run's spools to MLflow, exactly once, beside the training and never in its way.

`python -m ringshard.tracking.shipper RUN_DIR ATTEMPT` follows an attempt until it is over and all
has arrived, also where its agent was killed. It may itself be killed at any time: a row that is
sent again is identical, so MLflow keeps one, and what has been acknowledged stands in
`track/shipped.json`. What is left behind is sent by `ringshard track sync`.
"""

import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ringshard.config.schema.reader import read_job
from ringshard.errors import ConfigError
from ringshard.launch.state import Queue
from ringshard.launch.stop import SIGNALS
from ringshard.tracking import store
from ringshard.tracking.delivery import Shipped, Shipper
from ringshard.tracking.standing import RUNNING, Standing

_POLL_S = 2.0
_LONGEST_WAIT_S = 60.0


def follow(shipper: Shipper, patience_s: float) -> bool:
    """Ship until the attempt is over, however long the server is away; True if all has arrived.

    From its end on, it is tried for `patience_s` [s] more.
    """
    failures, until, is_over = 0, math.inf, False
    while time.monotonic() < until:
        try:
            stands = shipper.standing()
            is_over = stands.is_over
            until = min(until, time.monotonic() + patience_s) if is_over else until
            if shipper.ship(stands).status != RUNNING:
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
    """Where the agent was killed its ranks are so a moment later, as are other nodes' samplers."""
    if not shipper.exit_file.exists() or shipper.has_other_nodes:
        time.sleep(_POLL_S)
        shipper.ship(shipper.standing())


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
    why = store.why(error)
    print(f"tracking: attempt {failures} to reach MLflow failed: {why}", file=sys.stderr)


def sync(run_dir: Path, attempt: int, uri: str, experiment: str) -> Shipped:
    """Ship once; raises ConfigError where it can't be done now."""
    with _alone(run_dir, uri):
        shipper = Shipper(run_dir, attempt, uri, experiment)
        return shipper.ship(shipper.standing())


def close(
    run_dir: Path, attempt: int, uri: str, experiment: str, queue: Callable[[], Queue]
) -> Standing | None:
    """Ship once where MLflow's status of a run is not the true one; None: it was.

    Raises ConfigError where it can't be done now.
    """
    with _alone(run_dir, uri):
        shipper = Shipper(run_dir, attempt, uri, experiment)
        stands = shipper.standing(queue)
        if stands.is_over and shipper.status_in_mlflow() != stands.status:
            shipper.ship(stands, queue)
            return stands
        return None


@contextmanager
def _alone(run_dir: Path, uri: str) -> Iterator[None]:
    """Ships now and once, or raises ConfigError."""
    with store.told_in_a_sentence(f"{run_dir} could not be shipped to {uri}", "try later"):
        try:
            with _lock(run_dir, timeout_s=0):
                yield
        except Timeout as error:
            raise ConfigError(
                f"{run_dir} is being shipped right now: wait until it ends"
            ) from error


def _lock(run_dir: Path, timeout_s: float) -> FileLock:
    """Held while shipping: MLflow has no unique tags, so two shippers could make two runs."""
    return FileLock(run_dir / "track" / "lock", timeout=timeout_s)


def main() -> int:
    """Follow the attempt named on the command line; only its end, or SIGKILL, ends this.

    A cluster sends SIGTERM to all processes of a job, and how that ends is still to be told.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
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
