"""MLflow's side of a run, in processes of its own: neither agent nor ranks import it."""

import subprocess
import time
from pathlib import Path

from ringshard import child
from ringshard.config.schema.tracking import Backend, Tracking
from ringshard.errors import ConfigError
from ringshard.launch.stop import StopRequests, blocked

Shipper = subprocess.Popen[bytes]


def create_store(tracking: Tracking) -> None:
    """Makes the database and the experiment; raises ConfigError where MLflow refuses."""
    if tracking.backend is not Backend.mlflow:
        return
    try:
        child.ask("ringshard.tracking.store", tracking.uri, tracking.experiment)
    except child.ChildError as error:
        raise ConfigError(
            f"tracking.uri={tracking.uri} cannot be used ({error.last_line}): take another one"
        ) from error


def start_shipper(
    tracking: Tracking, run_dir: Path, attempt: int, on_cluster: bool = False
) -> Shipper | None:
    """The process that carries the spool to MLflow; Ctrl-C does not reach it.

    on_cluster: an sqlite file, on a disk that many machines share, is left to the submit host.
    """
    if tracking.backend is not Backend.mlflow:
        return None
    if on_cluster and tracking.uri.startswith("sqlite"):
        return None
    log = run_dir / "attempts" / str(attempt) / "shipper.log"
    with log.open("wb") as out, blocked():
        return subprocess.Popen(
            child.command("ringshard.tracking.shipper", str(run_dir), str(attempt)),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=child.environment(),
            start_new_session=True,
        )


def end_shipper(shipper: Shipper | None, patience_s: float, stop: StopRequests) -> bool:
    """Waits for the last points; false if they did not make it in time (the spool keeps them), or
    if another stop request comes meanwhile."""
    if shipper is None:
        return True
    until, asked = time.monotonic() + patience_s, len(stop.came)
    while time.monotonic() < until and len(stop.came) == asked:
        try:
            return shipper.wait(0.05) == 0
        except subprocess.TimeoutExpired:
            continue
    shipper.kill()
    shipper.wait()
    return False
