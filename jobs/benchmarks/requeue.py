"""From sbatch to the first step, from USR2 to the checkpoint, from a killed rank to the next step.

A llama of two layers, two nodes with a process each, on the Slurm of `infra/slurm`; nearly all of a
start is the import of torch and transformers by processes that share this machine's cores.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from benchmarks.cluster import ROOT, cluster, slurm

from ringshard.checkpoint.directory import committed
from ringshard.launch.progress import progress

_JOB = (
    *("data=text_files", "data.path=text.txt", "data.seq_len=64", "data.split=position"),
    *(
        "hardware=slurm_cpu",
        "hardware.processes_per_node=1",
        "tracking=jsonl",
        "train.steps=100000",
    ),
    *("train.log_every=1", "checkpoint.every=50", "train.eval_every=0"),
)


def run() -> list[dict[str, Any]]:
    """Seconds of each way, measured once."""
    with cluster() as folder:
        (folder / "text.txt").write_text("she sells sea shells by the sea shore. " * 2000)
        prepare = [sys.executable, str(ROOT / "jobs/prepare.py"), *_JOB[:4]]
        subprocess.run(prepare, cwd=folder, check=True, capture_output=True)
        began = time.time()
        command = [sys.executable, str(ROOT / "jobs/train.py"), *_JOB]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        returned = time.time()
        (record,) = folder.rglob("run.json")
        rows = [_row("command to its end", returned - began)]
        return rows + _disturbed(record.parent, returned)


def _disturbed(run: Path, returned: float) -> list[dict[str, Any]]:
    attempt = run / "attempts/1"
    _until((attempt / "first-step.json").exists)
    first = _told(attempt / "first-step.json")["time"]
    rows = [_row("submitted to first step", first - returned)]
    _until(lambda: committed(run / "checkpoints"))
    before, killed = progress(run).step, time.time()
    _ranks(run)[-1].kill()
    _until(
        lambda: (
            len(list((run / "track").glob("spool-1.*-rank0.jsonl"))) > 1
            and progress(run).step > before
        )
    )
    rows.append(_row("rank killed to a step further", time.time() - killed))
    signalled = time.time()
    slurm("scancel", "--signal=USR2", "-n", _name(attempt))
    _until((attempt / "exit.json").exists)
    newest = list(committed(run / "checkpoints").values())[-1]
    rows.append(_row("USR2 to checkpoint committed", newest.stat().st_ctime - signalled))
    rows.append(_row("USR2 to exit.json", _told(attempt / "exit.json")["time"] - signalled))
    slurm("scancel", "-u", "root")
    return rows


def _row(way: str, seconds: float) -> dict[str, Any]:
    return {"from … to …": way, "seconds": seconds}


def _name(attempt: Path) -> str:
    return Path(_told(attempt / "submitted.json")["submission"]).name


def _told(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


def _ranks(run: Path) -> list[psutil.Process]:
    every = psutil.process_iter(["cmdline"])
    words = ((process, process.info["cmdline"] or []) for process in every)
    return [p for p, w in words if "ringshard.train" in w and str(run) in w and len(w) < 10]


def _until(true: Callable[[], object], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("nothing more happens: see the job's logs")
        time.sleep(0.01)
