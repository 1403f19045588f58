"""What a sweep of 10,000 members and a job of 1,000 nodes ask of submit host, disk and Slurm.

Counted and timed on the Slurm of `infra/slurm`: sweeps of two sizes, whose difference is what a
member costs; a job of two nodes, of which the second is what a node costs; a rendezvous store with
many clients. The last column is arithmetic.
"""

import json
import os
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any

from benchmarks.cluster import MAX_ARRAY, ROOT, cluster, prepare, slurm
from benchmarks.meeting import connected, met

SMALL, LARGE, SWEEP = 100, 1000, 10_000
NODES, CLIENTS, AGENTS = 1000, 500, 64
_DATA = ("data=text_files", "data.path=text.txt", "data.seq_len=32", "data.split=position")
_TOOLS = "sbatch", "squeue", "scontrol", "sacct", "scancel"
_COUNTER = """
    import atexit, json, os, sys

    root, seen = os.environ.get("SCALE_ROOT", "-"), {}

    def hook(event, arguments):
        path = str(arguments[0]) if arguments else ""
        if event in ("open", "os.mkdir", "os.rename", "os.listdir", "os.scandir") and root in path:
            mode = arguments[1] if event == "open" else None
            kind = event if mode is None else "read" if mode in ("r", "rb") else "write"
            seen[kind] = seen.get(kind, 0) + 1

    def tell():
        with open(os.environ["SCALE_LOG"], "a") as log:
            node, command = os.environ.get("SLURM_NODEID", ""), " ".join(sys.orig_argv[1:4])
            log.write(chr(9).join([command, node, json.dumps(seen)]) + chr(10))

    if "SCALE_LOG" in os.environ:
        sys.addaudithook(hook)
        atexit.register(tell)
"""
"""Python's audit events in each process: what it opens, lists, makes and renames of the runs."""


def run() -> list[dict[str, Any]]:
    """One row a quantity."""
    with cluster() as folder:
        prepare(folder, _DATA, 2000)
        with _counted(folder) as counts:
            sweeps = {size: _sweep(folder, size, counts) for size in (SMALL, LARGE)}
            job = _job(folder, counts)
    rows = [_of_sweeps(name, sweeps) for name in sweeps[SMALL]]
    rows += [_of_job(name, value) for name, value in job.items()]
    return rows + _of_meetings()


def _row(what: str, measured: float, each: float, scaled: str) -> dict[str, Any]:
    return {"what": what, "measured": measured, "of one": each, "at scale": scaled}


def _of_sweeps(name: str, sweeps: dict[int, dict[str, float]]) -> dict[str, Any]:
    large, small = sweeps[LARGE][name], sweeps[SMALL][name]
    each = (large - small) / (LARGE - SMALL)
    total = small + each * (SWEEP - SMALL)
    if name == "sbatch":
        total = ceil(SWEEP / MAX_ARRAY)
    what = f"{LARGE} members: {name}"
    return _row(what, large, each, f"{total:,.0f} for {SWEEP:,} members")


def _of_job(name: str, value: float) -> dict[str, Any]:
    return _row(f"a job, of its second node: {name}", value, value, f"{value * NODES:,.0f}")


def _of_meetings() -> list[dict[str, Any]]:
    """Agents that meet write one and the same state, which grows with them, until nobody else was
    faster: the last column goes with the square of their number."""
    seconds = connected(CLIENTS)
    total = f"{seconds / CLIENTS * NODES * 9:.1f} of {NODES} agents and {NODES * 8} ranks"
    rows = [_row(f"{CLIENTS} clients of a store connect [s]", seconds, seconds / CLIENTS, total)]
    for what, value in met(AGENTS).items():
        square = f"{value * (NODES / AGENTS) ** 2:,.0f} of {NODES} agents, by the square"
        if what == "seconds":
            square = "threads of one process: no measure of a cluster"
        rows.append(_row(f"{AGENTS} agents meet: {what}", value, value / AGENTS, square))
    return rows


@contextmanager
def _counted(folder: Path) -> Iterator[Path]:
    """Calls of Slurm's commands, and Python's events, go to a log that is read by `_tally`."""
    tools, log = folder / "tools", folder / "scale.log"
    tools.mkdir()
    (tools / "sitecustomize.py").write_text(textwrap.dedent(_COUNTER))
    for tool in _TOOLS:
        real = slurm("which", tool).strip()
        (tools / tool).write_text(
            f'#!/bin/sh\necho "{tool} $SLURM_NODEID" >> {log}\nexec {real} "$@"\n'
        )
        (tools / tool).chmod(0o755)
    before = dict(os.environ)
    paths = {"PATH": f"{tools}:{before['PATH']}", "SCALE_LOG": str(log), "SCALE_ROOT": "outputs"}
    here = os.pathsep.join([str(tools), before.get("PYTHONPATH", "")])
    os.environ.update(paths, PYTHONPATH=here.rstrip(os.pathsep))
    try:
        yield log
    finally:
        os.environ.clear()
        os.environ.update(before)


def _sweep(folder: Path, size: int, log: Path) -> dict[str, float]:
    """Held members: composed, checked, frozen, submitted."""
    log.write_text("")
    swept = f"train.seed={','.join(map(str, range(size)))}"
    held = ("hardware.slurm.extra={hold: true}", "tracking=jsonl", f"sweep.name=of-{size}")
    fixed = ("-m", "hardware=slurm_cpu", "hardware.nodes=1", *held)
    command = [sys.executable, str(ROOT / "jobs/train.py"), *_DATA, *fixed, swept]
    before = _disk(folder)
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"a sweep of {size} was not submitted")
    tools, events = _tally(log, "jobs/train.py")
    files, size_kib = (now - then for now, then in zip(_disk(folder), before, strict=True))
    slurm("scancel", "-u", "root")
    return {
        "CPU of the submit host [s]": used.ru_utime + used.ru_stime,
        "files": files,
        "size of the files [KiB]": size_kib,
        "files written": events["write"],
        "renames": events["os.rename"],
        "sbatch": tools["sbatch"],
        "other calls of Slurm": sum(tools.values()) - tools["sbatch"],
    }


def _job(folder: Path, log: Path) -> dict[str, float]:
    """Two nodes with a process each, a minute at most: what the second agent asks for."""
    log.write_text("")
    steps = ("train.steps=20", "tracking=jsonl", "launcher.wait=true", "output.name=job")
    fixed = ("hardware=slurm_cpu", "hardware.processes_per_node=1", *steps)
    command = [sys.executable, str(ROOT / "jobs/train.py"), *_DATA, *fixed]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (run,) = folder.rglob("job-*/run.json")
    tools, events = _tally(log, "submitit", node="1")
    files = [file for file in (run.parent / "attempts/1").rglob("*") if file.is_file()]
    return {
        "files written by the agent": events["write"],
        "files read by the agent": events["read"],
        "folders listed in 20 steps": events["os.listdir"] + events["os.scandir"],
        "files of its own": sum("-1." in file.name or file.name.endswith("-1") for file in files),
        "calls of Slurm": sum(tools.values()),
    }


def _tally(log: Path, command: str, node: str = "") -> tuple[Counter[str], Counter[str]]:
    """Calls of tools, and events of the processes of one command, on a node or the submit host."""
    tools, events = Counter[str](), Counter[str]()
    for line in log.read_text().splitlines():
        words, index, told = (*line.split("\t"), "", "")[:3]
        if not told and line.split(" ")[1] == node:
            tools[line.split(" ")[0]] += 1
        elif command in words and index == node:
            events.update(json.loads(told))
    return tools, events


def _disk(folder: Path) -> tuple[int, float]:
    files = [file for file in (folder / "outputs").rglob("*") if file.is_file()]
    return len(files), sum(file.stat().st_size for file in files) / 1024
