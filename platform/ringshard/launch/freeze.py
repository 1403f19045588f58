"""An attempt is frozen before it starts: what is edited later changes nothing of it."""

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from ringshard.config.compose import Command
from ringshard.config.schema.job import User
from ringshard.config.schema.reader import plain
from ringshard.files import whole_folder, write_json, write_whole
from ringshard.launch.code import record_code
from ringshard.launch.identity import Run
from ringshard.launch.rundir import Record


def freeze(run: Run, command: Command) -> int:
    """Writes the folder of the next attempt of a claimed run and returns its number."""
    number = run.dir.last_attempt() + 1
    run.dir.clear_markers()
    write_attempt(run.dir.attempt(number), {"job": run.job}, run.job.user, run.overrides)
    if not run.dir.record.exists():  # last: a folder with it is a run, and has an attempt
        _write_run(run, command)
    return number


def write_attempt(
    folder: Path, configs: Mapping[str, Any], user: User, overrides: list[str]
) -> None:
    """A new folder of an attempt: what it is to do (NAME.yaml of each config, a dataclass), with
    which code, and that it began. It is there whole or not at all."""
    with whole_folder(folder) as new:
        for name, config in configs.items():
            text = yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True)
            write_whole(new / f"{name}.yaml", text)
        write_json(new / "overrides.json", overrides)
        record_code(new, user)
        started = {"time": time.time(), "host": socket.gethostname(), "pid": os.getpid()}
        write_json(new / "started.json", started)


def _write_run(run: Run, command: Command) -> None:
    record = Record(
        name=run.job.output.name,
        signature=run.signature,
        sweep=run.sweep,
        created=time.time(),
        config_name=command.config_name,
        options=command.options,
        overrides=run.overrides,
    )
    write_json(run.dir.record, asdict(record))
