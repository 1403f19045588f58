"""The folder of an attempt on Slurm: made when it is submitted, or by the first node of a job that
was queued again; what the attempts of one submission came to."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from ringshard.config.schema.reader import as_yaml
from ringshard.files import is_listed, read_json, whole_folder, write_json, write_whole
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.slurm import limit
from ringshard.launch.slurm.node import Node
from ringshard.launch.slurm.verdict import TIMEOUT, Past

# What was frozen at submission goes on being what is done; the rest tells how it went.
_FROZEN = ("*.yaml", "overrides*", "code*", "submitted.json")
_STARTED = "started.json"
_PATIENCE_S = 600.0


def enter(run: RunDir, first: int, node: Node, asked_s: int) -> int:
    """The number of the attempt that this job makes, whose folder is there when this returns.

    first: the attempt that was submitted; each time that the job is queued again is another one;
    asked_s: the notice before its time limit that was asked of Slurm then.
    """
    number = first + node.restart
    folder = run.attempt(number)
    if not node.is_first:
        _wait_for(folder / _STARTED, len(node.hosts))
        return number
    if not folder.exists():
        with whole_folder(folder) as new:
            for pattern in _FROZEN:
                for file in run.attempt(first).glob(pattern):
                    shutil.copy2(file, new)
    _take_data(folder)
    (folder / "nodes").mkdir(exist_ok=True)
    run.clear_markers()
    lead = max(asked_s, limit.lead_s(run.job(number), run))
    told = {"time": time.time(), "pid": os.getpid(), "step": run.newest_step(), "lead_s": lead}
    write_json(folder / _STARTED, told | node.record())
    return number


def lead_s(run: RunDir, number: int) -> int:
    """How long before its time limit an attempt is to stop, as its first node has found [s]."""
    return int((read_json(run.attempt(number) / _STARTED) or {})["lead_s"])


def _take_data(folder: Path) -> None:
    """Completes the frozen job where its data were prepared after it was submitted."""
    waited_for = (read_json(folder / "submitted.json") or {}).get("data")
    file = folder / "job.yaml"
    job = yaml.safe_load(file.read_text(encoding="utf-8"))
    if waited_for and job["data"]["digest"] is None:
        prepared = read_json(Path(waited_for) / "prepared.json")
        if prepared is None:
            raise FileNotFoundError(f"{waited_for} has no prepared data: see the logs in it")
        job["data"] |= {key: prepared[key] for key in ("prepared", "digest")}
        write_whole(file, as_yaml(job))


def _wait_for(file: Path, nodes: int) -> None:
    until = time.monotonic() + _PATIENCE_S
    while not is_listed(file):
        if time.monotonic() > until:
            raise TimeoutError(f"{file} did not appear: is the file system shared by all nodes?")
        time.sleep(_tick_s(nodes))


def past(run: RunDir, first: int, now: int, reason: str | None) -> Past:
    """What the attempts from `first` to `now`, which ends for `reason` or crashed, came to."""
    ends = [read_json(run.attempt(n) / "exit.json") for n in range(first, now)]
    timeouts = sum(end is not None and end.get("why") == TIMEOUT for end in ends)
    began = (read_json(run.attempt(now) / _STARTED) or {}).get("step", 0)
    return Past(
        crashes=crashes(run, first, now) + (reason is None),
        timeouts=timeouts + (reason == TIMEOUT),
        progressed=run.newest_step() > began,
    )


def crashes(run: RunDir, first: int, now: int) -> int:
    """Attempts from `first` to before `now` that failed, or began and left no word."""
    return sum(_crashed(run.attempt(number)) for number in range(first, now))


def in_vain(run: RunDir, first: int, now: int) -> int:
    """The last of these in a row that began, left no word and saved nothing new."""
    newest = run.newest_step()
    folders = (run.attempt(number) for number in range(now - 1, first - 1, -1))
    return sum(1 for _ in takewhile(lambda folder: _is_in_vain(folder, newest), folders))


def _is_in_vain(folder: Path, newest: int) -> bool:
    began = read_json(folder / _STARTED)
    if began is None or (folder / "exit.json").exists():
        return False
    return int(began["step"]) >= newest


def _crashed(folder: Path) -> bool:
    end = read_json(folder / "exit.json")
    if end is None:
        return (folder / _STARTED).exists()
    return "crashed" in str(end.get("why"))


@contextmanager
def output_to(file: Path) -> Iterator[None]:
    """What this process and those that it starts print goes to a file of the attempt."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    yield


def _tick_s(nodes: int) -> float:
    """How often one of many that wait for the same file looks for it [s]."""
    return max(0.1, nodes / 1000)


def exit_of(folder: Path, timeout_s: float, nodes: int) -> dict[str, Any] | None:
    """The word of the first node on how the attempt ended; None if it does not come in time."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if is_listed(folder / "exit.json"):
            return read_json(folder / "exit.json")
        time.sleep(_tick_s(nodes))
    return None


def outcome_of(end: dict[str, Any] | None) -> Outcome | None:
    """The outcome that an exit.json tells."""
    return Outcome[end["outcome"]] if end else None
