"""An attempt is frozen before it starts: what is edited later changes nothing of it."""

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ringshard.config.compose import Command
from ringshard.config.schema.job import User
from ringshard.config.schema.reader import as_yaml
from ringshard.files import whole_folder, write_json, write_whole
from ringshard.launch.code import Code, code_of
from ringshard.launch.identity import Run
from ringshard.launch.rundir import Record


def freeze(
    run: Run,
    command: Command,
    submitted: Mapping[str, Any] | None = None,
    code: Code | None = None,
) -> int:
    """Writes the folder of the next attempt of a claimed run and returns its number.

    submitted: how it is submitted, for one that does not begin here and now; code: what was found
    out already, for many that are frozen together.
    """
    number = run.dir.last_attempt() + 1
    run.dir.clear_markers()
    folder, configs = run.dir.attempt(number), {"job": run.job}
    write_attempt(folder, configs, run.job.user, run.overrides, submitted, code)
    if not run.dir.record.exists():  # last: a folder with it is a run, and has an attempt
        _write_run(run, command)
    return number


def write_attempt(
    folder: Path,
    configs: Mapping[str, Any],
    user: User,
    overrides: list[str],
    submitted: Mapping[str, Any] | None = None,
    code: Code | None = None,
) -> None:
    """A new folder of an attempt: what it is to do (NAME.yaml of each config, a dataclass), with
    which code, and that it began or was submitted. It is there whole or not at all."""
    with whole_folder(folder) as new:
        for name, config in configs.items():
            write_whole(new / f"{name}.yaml", as_yaml(config))
        write_json(new / "overrides.json", overrides)
        (code or code_of(user)).record(new)
        if submitted is None:
            begun(new)
        else:
            write_json(new / "submitted.json", _here() | dict(submitted))


def begun(folder: Path) -> None:
    """Notes that this process is at work on an attempt: who stops it sends the signal here."""
    write_json(folder / "started.json", _here())


def _here() -> dict[str, Any]:
    return {"time": time.time(), "host": socket.gethostname(), "pid": os.getpid()}


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
