"""An attempt is frozen before it starts: what is edited later changes nothing of it."""

import os
import socket
import time
from pathlib import Path

import yaml

from ringshard.config.compose import Command
from ringshard.config.schema.reader import plain
from ringshard.launch.code import record_code
from ringshard.launch.files import write_json, write_whole
from ringshard.launch.identity import Run


def freeze(run: Run, command: Command) -> int:
    """Writes the folder of the next attempt of a claimed run and returns its number."""
    number = run.dir.last_attempt() + 1
    folder = run.dir.attempt(number)
    folder.mkdir(parents=True)
    run.dir.clear_markers()
    if number == 1:
        _write_run(run, command)
    job = yaml.safe_dump(plain(run.job), sort_keys=False, allow_unicode=True)
    write_whole(folder / "job.yaml", job)
    write_whole(folder / "overrides.txt", "".join(f"{line}\n" for line in run.overrides))
    record_code(folder, run.job.user)
    started = {"time": time.time(), "host": socket.gethostname(), "pid": os.getpid()}
    write_json(folder / "started.json", started)
    return number


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
