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
from statistics import median
from typing import Any

import psutil
from benchmarks.cluster import ROOT, cluster, prepare, slurm

from ringshard.checkpoint.directory import committed
from ringshard.launch.progress import progress
from ringshard.tracking.spool import read_spool

_DATA = ("data=text_files", "data.path=text.txt", "data.seq_len=64", "data.split=position")
_JOB = (
    *("hardware=slurm_cpu", "hardware.processes_per_node=1", "tracking=jsonl"),
    *("train.steps=100000", "train.log_every=1", "checkpoint.every=50", "train.eval_every=0"),
)
ROUNDS = 3


def run() -> list[dict[str, Any]]:
    """Seconds of each way: the median and the longest of three runs, one after another."""
    with cluster() as folder:
        prepare(folder, _DATA, 2000)
        rounds = [_round(folder, f"round-{number}") for number in range(ROUNDS)]
    every = {way: [one[way] for one in rounds] for way in rounds[0]}
    return [
        {"from … to …": way, "seconds": median(taken), "longest": max(taken)}
        for way, taken in every.items()
    ]


def _round(folder: Path, name: str) -> dict[str, float]:
    began = time.time()
    command = [sys.executable, str(ROOT / "jobs/train.py"), *_DATA, *_JOB, f"output.name={name}"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (record,) = folder.rglob(f"runs/{name}-*/run.json")
    run = record.parent
    attempt = run / "attempts/1"
    submitted = _told(attempt / "submitted.json")["time"]
    found = {"command to its end": time.time() - began}
    _until((attempt / "first-step.json").exists)
    first, started = (_told(attempt / f"{what}.json")["time"] for what in ("first-step", "started"))
    found |= {"sbatch to first step": first - submitted, "agent to first step": first - started}
    found |= _killed(run) | _signalled(run, attempt)
    slurm("scancel", "-u", "root")
    _until(lambda: not slurm("squeue", "-h"))
    return found


def _killed(run: Path) -> dict[str, float]:
    """A rank of the second node, which is started again in place from the newest checkpoint."""
    _until(lambda: committed(run / "checkpoints"))
    before, killed = progress(run).step, time.time()
    _ranks(run)[-1].kill()
    restarted = run / "track/spool-1.1-rank0.jsonl"
    _until(restarted.exists)
    _until(lambda: _records(restarted))
    resumed = time.time() - killed
    _until(lambda: progress(run).step > before)
    caught_up = time.time() - killed
    return {"rank killed to a step": resumed, "rank killed to a step further": caught_up}


def _records(spool: Path) -> bool:
    return any(record for record, _ in read_spool(spool))


def _signalled(run: Path, attempt: Path) -> dict[str, float]:
    signalled = time.time()
    slurm("scancel", "--signal=USR2", "-n", _name(attempt))
    _until((attempt / "exit.json").exists)
    newest = max(file.stat().st_ctime for file in committed(run / "checkpoints").values())
    if newest < signalled:
        raise RuntimeError("no checkpoint followed the signal")
    ended = _told(attempt / "exit.json")["time"]
    return {
        "USR2 to checkpoint committed": newest - signalled,
        "USR2 to exit.json": ended - signalled,
    }


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
