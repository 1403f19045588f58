"""Attempts that Slurm never began: cancelled while they waited, or made to wait in vain."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from ringshard.errors import ConfigError
from ringshard.files import read_json
from ringshard.launch.rundir import Outcome, RunDir

CANCELLED = "cancelled while it waited"


def has_begun(run: RunDir, submitted: dict[str, Any], job: str) -> bool:
    """Whether the script of a run's newest job began on a node, which makes its log before all
    else."""
    started = run.attempt(run.last_attempt()) / "started.json"
    return started.exists() or (Path(submitted["submission"]) / f"{job}_0_log.out").exists()


def of_data(run: RunDir) -> dict[str, str]:
    """Why the data that the newest attempt waited for are not there; empty if they are."""
    submitted = read_json(run.attempt(run.last_attempt()) / "submitted.json") or {}
    if "data" not in submitted:
        return {}
    folder = Path(submitted["data"])
    untold = {} if (folder / "prepared.json").exists() else {"error": f"no data: see {folder}"}
    return read_json(folder / "error.json") or untold


def predecessor(run: RunDir) -> RunDir | None:
    """The run that one which never began was to follow, if that is not done."""
    attempt = run.attempt(run.last_attempt())
    if not (attempt / "job.yaml").exists() or (attempt / "started.json").exists():
        return None
    before = None
    with suppress(ConfigError):  # of another version
        before = run.job(run.last_attempt()).launcher.after
    if before is None or RunDir(Path(before)).outcome() is Outcome.done:
        return None
    return RunDir(Path(before))
