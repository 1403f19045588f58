"""Submitting 200 members of a sweep to Slurm, ours against hydra-submitit-launcher 1.2.0.

Time until the shell is free (for the peer, which blocks until the end: until Slurm has all jobs),
and CPU of the command. Ours validates and freezes every member; the jobs are held and never run.
"""

import os
import subprocess
import sys
import textwrap
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.cluster import ROOT, cluster, prepare, slurm

MEMBERS = 200
ROUNDS = 2
_PEER = """
    import hydra
    from ringshard.config.compose import _store, conf_dir
    from ringshard.config.schema.job import Job

    _store("train", Job)


    @hydra.main(str(conf_dir()), "train", version_base="1.3")
    def main(config):
        raise SystemExit("never run")


    main()
"""


def run() -> list[dict[str, Any]]:
    """Seconds and CPU seconds, of the whole and of a member: the better of two rounds, in turns."""
    launchers = {"ringshard": [str(ROOT / "jobs/train.py"), "-m", *_ours()]}
    if find_spec("hydra_plugins.hydra_submitit_launcher"):
        launchers["hydra-submitit-launcher"] = ["peer.py", "-m", *_peer()]
    else:
        print("the peer is left out: pip install --no-deps hydra-submitit-launcher==1.2.0")
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in launchers}
    with cluster() as folder:
        (folder / "peer.py").write_text(textwrap.dedent(_PEER))
        prepare(folder, _DATA, 200)
        swept = f"train.seed={','.join(map(str, range(MEMBERS)))}"
        for number in range(ROUNDS):
            for name, command in launchers.items():
                root = f"output.root=round-{number}", "data.cache=outputs/data"
                measured[name].append(_submitted(name, [*command, *_DATA, *root, swept], folder))
    best = {name: min(seconds for seconds, _ in rounds) for name, rounds in measured.items()}
    return [
        {
            "launcher": name,
            "members": MEMBERS,
            "seconds": best[name],
            "ms a member": 1e3 * best[name] / MEMBERS,
            "CPU ms a member": 1e3 * min(cpu for _, cpu in rounds) / MEMBERS,
            "times ours": best[name] / best["ringshard"],
        }
        for name, rounds in measured.items()
    ]


_DATA = ("data=text_files", "data.path=text.txt", "data.seq_len=32", "data.split=position")


def _ours() -> list[str]:
    held = "tracking=jsonl", "hardware.slurm.extra={hold: true}"
    return ["hardware=slurm_cpu", "hardware.nodes=1", *held]


def _peer() -> list[str]:
    launcher = "hydra.launcher"
    return [
        *("hydra/sweeper=basic", "hydra/launcher=submitit_slurm", f"{launcher}.nodes=1"),
        f"+{launcher}.additional_parameters.hold=true",
        f"{launcher}.array_parallelism={MEMBERS}",
    ]


def _submitted(name: str, command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds until all members are in the queue and the shell is free, and of CPU; the peer never
    frees the shell, and is ended."""
    began, log = time.perf_counter(), folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=folder, stdout=out, stderr=subprocess.STDOUT
        )
    while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
        if name != "ringshard" and _queued() == MEMBERS:
            process.terminate()
        time.sleep(0.1)
    seconds = time.perf_counter() - began
    if (jobs := _queued()) != MEMBERS:
        raise RuntimeError(f"{name} has submitted {jobs} jobs: {log.read_text()[-2000:]}")
    slurm("scancel", "-u", "root")
    while _queued():
        time.sleep(0.1)
    return seconds, ended[2].ru_utime + ended[2].ru_stime


def _queued() -> int:
    return len(slurm("squeue", "-h", "-r").splitlines())
