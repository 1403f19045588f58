"""C5 and C7 at instants nobody chose: runs are killed with -9 anywhere, and resumed until done.

As many runs as fit into four minutes, or RINGSHARD_KILLED_RUNS. The seed is the date's and printed;
RINGSHARD_SEED brings a day back.
"""

import datetime
import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch
from faults.test_kill import STEPS, _command
from parity.test_command_line import ROOT
from runs import curve, parameters_of

from ringshard.tracking import shipper, store

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1500)]

SECONDS = 240
VICTIMS = ("rank", "agent", "everything")
TRACKED = ("tracking=mlflow", "tracking.system_every_s=1", "tracking.flush_timeout_s=20")


def _start(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )


def _tracked(folder: Path) -> list[str]:
    folder.mkdir()
    return [word for word in _command(folder) if word != "tracking=jsonl"] + list(TRACKED)


def _kill(victim: str, process: "subprocess.Popen[str]", chance: random.Random) -> str:
    """Kills what there is of it; says what it was."""
    tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    ranks = [member for member in tree if _is_rank(member)]
    if victim == "rank" and ranks:
        doomed = [chance.choice(ranks)]
    else:
        doomed = tree if victim == "everything" else tree[:1]
    for member in doomed:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    return f"{victim} ({len(doomed)} of {len(tree)} processes)"


def _is_rank(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        words = process.cmdline()
        return "ringshard.train" in words and "torch.distributed.run" not in words
    return False


def _run_of(folder: Path) -> Path | None:
    """The run, once there is one; a kill before leaves a folder that nothing refers to."""
    return next((file.parent for file in (folder / "runs").glob("*/run.json")), None)


def _go_on(folder: Path, command: list[str]) -> list[str]:
    run = _run_of(folder)
    return [sys.executable, str(ROOT / "jobs/train.py"), f"resume={run}"] if run else command


def _killed_and_resumed(folder: Path, seconds: float, chance: random.Random) -> tuple[Path, str]:
    """A run that was killed once to three times, each within `seconds` of its start."""
    command, story = _tracked(folder), []
    for _ in range(chance.randint(1, 3)):
        process = _start(_go_on(folder, command))
        instant = chance.uniform(0, seconds)
        with suppress(subprocess.TimeoutExpired):
            process.wait(instant)
        if process.poll() is None:
            story.append(f"{instant:.1f} s: {_kill(chance.choice(VICTIMS), process, chance)}")
        process.communicate()
        if (run := _run_of(folder)) and (run / "DONE").exists():
            break
    last = _start(_go_on(folder, command))
    said = last.communicate()[1]
    run = _run_of(folder)
    done = run is not None and (run / "DONE").exists()
    assert done, f"{story}: {said}"
    assert run is not None
    return run, "; ".join(story) or "it was done before"


def _assert_same(run: Path, whole: Path) -> None:
    assert len(curve(run)) == STEPS
    for metric in ("train/loss", "train/grad_norm", "val/loss"):
        assert curve(run, metric) == curve(whole, metric), metric
    expected, got = parameters_of(whole), parameters_of(run)
    assert expected.keys() == got.keys()
    assert all(torch.equal(got[name], tensor) for name, tensor in expected.items())


def _assert_alone(folder: Path) -> None:
    """No process that speaks of the folder is left, some seconds later."""
    until = time.monotonic() + 90
    while left := [p for p in psutil.process_iter() if _speaks_of(folder, p)]:
        assert time.monotonic() < until, [process.cmdline() for process in left]
        time.sleep(0.2)


def _speaks_of(folder: Path, process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        if process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
            return any(str(folder) in word for word in process.cmdline())
    return False


def _assert_tracked(run: Path) -> None:
    uri = f"sqlite:///{run.parents[1] / 'mlflow.db'}"
    attempt = max(int(folder.name) for folder in (run / "attempts").iterdir())
    assert shipper.sync(run, attempt, uri, "ringshard").status == "FINISHED"
    client = store.connect(uri)
    home = client.get_experiment_by_name("ringshard").experiment_id
    (there,) = client.search_runs([home])
    assert there.info.status == "FINISHED"
    for metric in ("train/loss", "val/loss", "train/lr"):
        rows = client.get_metric_history(there.info.run_id, metric)
        assert sorted((row.step, row.value) for row in rows) == sorted(curve(run, metric).items())
    mismatches = client.get_metric_history(there.info.run_id, "resume/mismatch")
    assert {row.value for row in mismatches} <= {0.0}


def test_a_run_killed_at_random_ends_otherwise_or_leaves_something(tmp_path: Path) -> None:
    seed = int(os.environ.get("RINGSHARD_SEED", datetime.date.today().toordinal()))
    print(f"RINGSHARD_SEED={seed}")
    chance, begun = random.Random(seed), time.monotonic()
    home = tmp_path / "undisturbed"
    subprocess.run(_tracked(home), check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - begun
    whole = _run_of(home)
    assert whole is not None
    wanted = int(os.environ.get("RINGSHARD_KILLED_RUNS", 0))
    number = 0
    while number < wanted or (not wanted and time.monotonic() - begun < SECONDS):
        number += 1
        folder = tmp_path / f"killed-{number}"
        run, story = _killed_and_resumed(folder, seconds, chance)
        print(f"run {number}: {story}", flush=True)
        _assert_alone(folder)
        _assert_same(run, whole)
        _assert_tracked(run)
