"""An attempt is frozen before it starts: what is edited later changes nothing of it."""

import os
import socket
import time
from pathlib import Path
from typing import Any

import yaml

from ringshard.config.compose import Command
from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import plain
from ringshard.launch.code import record_code
from ringshard.launch.files import write_json, write_whole
from ringshard.launch.identity import Run


def freeze(run: Run, command: Command) -> int:
    """Writes the folder of the next attempt of a claimed run and returns its number."""
    number = run.dir.last_attempt() + 1
    run.dir.clear_markers()
    if number == 1:
        _write_run(run, command)
    write_attempt(run.dir.attempt(number), run.job, run.overrides)
    return number


def write_attempt(folder: Path, job: Job, overrides: list[str]) -> None:
    """Writes the new folder of an attempt: what it is to do, with which code, and that it began."""
    folder.mkdir(parents=True)
    write_yaml(folder / "job.yaml", job)
    write_whole(folder / "overrides.txt", "".join(f"{line}\n" for line in overrides))
    record_code(folder, job.user)
    started = {"time": time.time(), "host": socket.gethostname(), "pid": os.getpid()}
    write_json(folder / "started.json", started)


def write_yaml(path: Path, config: Any) -> None:
    """Writes a configuration, a dataclass, as YAML."""
    write_whole(path, yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True))


def _write_run(run: Run, command: Command) -> None:
    write_json(
        run.dir.path / "run.json",
        {
            "name": run.job.output.name,
            "signature": run.signature,
            "sweep": run.sweep,
            "created": time.time(),
            "config_name": command.config_name,
            "options": command.options,
            "overrides": run.overrides,
        },
    )


def read_overrides(folder: Path) -> list[str]:
    """The overrides of an attempt."""
    return (folder / "overrides.txt").read_text(encoding="utf-8").splitlines()
