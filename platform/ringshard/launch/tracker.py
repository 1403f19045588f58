"""MLflow's side of a run, in processes of its own: neither agent nor ranks import it."""

import os
import subprocess
import sys
from pathlib import Path

from ringshard.config.schema.tracking import Backend, Tracking
from ringshard.errors import ConfigError
from ringshard.launch.environment import clean
from ringshard.launch.stop import blocked

Shipper = subprocess.Popen[bytes]


def create_store(tracking: Tracking) -> None:
    """Makes the database and the experiment; raises ConfigError where MLflow refuses."""
    if tracking.backend is not Backend.mlflow:
        return
    command = [sys.executable, "-m", "ringshard.tracking.store", tracking.uri, tracking.experiment]
    made = subprocess.run(command, env=_environment(), capture_output=True)
    if made.returncode:
        said = made.stderr.decode(errors="replace").strip().splitlines()
        raise ConfigError(said[-1] if said else f"tracking.uri={tracking.uri} cannot be used")


def start_shipper(tracking: Tracking, run_dir: Path, attempt: int) -> Shipper | None:
    """The process that carries the spool to MLflow; Ctrl-C does not reach it."""
    if tracking.backend is not Backend.mlflow:
        return None
    log = run_dir / "attempts" / str(attempt) / "shipper.log"
    with log.open("wb") as out, blocked():
        return subprocess.Popen(
            [sys.executable, "-m", "ringshard.tracking.shipper", str(run_dir), str(attempt)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=_environment(),
            start_new_session=True,
        )


def end_shipper(shipper: Shipper | None, patience_s: float) -> bool:
    """Waits for the last points; false if they did not make it in time (the spool keeps them)."""
    if shipper is None:
        return True
    try:
        return shipper.wait(patience_s) == 0
    except subprocess.TimeoutExpired:
        shipper.kill()
        shipper.wait()
        return False


def _environment() -> dict[str, str]:
    return {
        **clean(os.environ),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "PYTHONSAFEPATH": "1",
    }
