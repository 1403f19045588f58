"""A command line as a user types it, with the stand-in for the trainer, in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import psutil

import ringshard
from ringshard.config.schema.job import Job
from ringshard.entry import run_job_app
from ringshard.launch.chosen import choose_runs
from ringshard.launch.resume import resume
from ringshard.launch.start import start

HERE = Path(__file__).parent
TEXT = "the quick brown fox jumps over the lazy dog\n" * 200
SMALL = ("data=text_files", "data.path=text.txt", "data.seq_len=16", "data.split=position")
PYTHONPATH = os.pathsep.join([str(HERE), str(Path(ringshard.__file__).parents[1])])
QUICK = (*SMALL, "tracking=jsonl", f"+hardware.env.PYTHONPATH={PYTHONPATH}")
APP = """
import sys
from functools import partial
from ringshard.config.schema.job import Job
from ringshard.entry import run_job_app
from ringshard.launch.chosen import choose_runs
from ringshard.launch.resume import resume
from ringshard.launch.start import start
run, go_on = partial(start, module="standin"), partial(resume, module="standin")
drive = partial(choose_runs, module="standin")
sys.exit(run_job_app("train", sys.argv[1:], Job, run, go_on, drive=drive))
"""


def begin(folder: Path, *argv: str, **kwargs: Any) -> "subprocess.Popen[str]":
    """Starts the command in `folder`, where text.txt lies."""
    (folder / "text.txt").write_text(TEXT)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | kwargs
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "RANK": "7", "SLURM_JOB_ID": "1"}
    command = [sys.executable, "-c", APP, *QUICK, *argv]
    return subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **pipes)


def run(folder: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    """The same, to its end."""
    process = begin(folder, *argv)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def answer(folder: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    """The same in this process, for a command that starts no run: a second instead of four."""
    (folder / "text.txt").write_text(TEXT)
    out, err = StringIO(), StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        code = run_job_app("train", [*QUICK, *argv], Job, start, resume, drive=choose_runs)
    return subprocess.CompletedProcess(argv, code, out.getvalue(), err.getvalue())


def run_dirs(folder: Path) -> list[Path]:
    """All runs below the folder's output root, oldest first."""
    found = (folder / "outputs").rglob("run.json")
    return sorted((path.parent for path in found), key=lambda p: (p / "run.json").stat().st_mtime)


def seen(folder: Path, rank: int, attempt: int = 1, timeout_s: float = 60) -> dict[str, Any]:
    """What a rank of the first run saw of its environment, once it is up."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        for run_dir in run_dirs(folder):
            path = run_dir / "attempts" / str(attempt) / f"seen-{rank}.json"
            if path.exists() and path.read_text():
                return dict(json.loads(path.read_text()))
        time.sleep(0.05)
    raise AssertionError(f"rank {rank} did not come up in {timeout_s} s")


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def interrupt(process: "subprocess.Popen[str]", number: int = signal.SIGINT) -> None:
    """What Ctrl-C does: the signal goes to the foreground process group, not to other sessions."""
    os.killpg(process.pid, number)
