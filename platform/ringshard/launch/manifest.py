"""`manifest.json` of a sweep: every member, and where it stood when a command last looked.

The run directories are the truth; this is their list.
"""

import time
from pathlib import Path
from typing import Any

from filelock import FileLock

from ringshard.files import read_json, write_json
from ringshard.launch.identity import Run
from ringshard.launch.rundir import RunDir
from ringshard.launch.state import Queue, ask_queue, job_id, state

NAME = "manifest.json"


def write(runs: list[Run]) -> None:
    """Notes the members of a command; those of earlier ones that have begun stay. One run alone has
    no list."""
    if runs[0].sweep is None:
        return
    jobs = ask_queue()
    file = runs[0].dir.path.parent / NAME
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_name("manifest.lock")):
        known = (read_json(file) or {}).get("members", {})
        members = {name: noted for name, noted in known.items() if _has_begun(file.parent / name)}
        members |= {run.dir.path.name: _noted(run, jobs) for run in runs}
        write_json(file, {"sweep": runs[0].sweep, "time": time.time(), "members": members})


def never_begun(sweep: Path) -> int:
    """Members without any attempt."""
    members = (read_json(sweep / NAME) or {}).get("members", {})
    new = (name for name, noted in members.items() if not noted["attempts"])
    return sum(not _has_begun(sweep / name) for name in new)


def _has_begun(member: Path) -> bool:
    return RunDir(member).record.exists()


def _noted(run: Run, jobs: Queue) -> dict[str, Any]:
    return {
        "overrides": run.overrides,
        "signature": run.signature,
        "state": state(run.dir, jobs).name,
        "attempts": run.dir.last_attempt(),
        "job": job_id(run.dir),
    }
