"""Submitting 200 members of a sweep to Slurm, ours against hydra-submitit-launcher 1.2.0.

Time until the shell is free (for the peer, which blocks until the end: until Slurm has all jobs),
and CPU of the command. Ours validates and freezes every member; the jobs are held and never run.
"""

import resource
import subprocess
import sys
import textwrap
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.cluster import ROOT, cluster, slurm

MEMBERS = 200
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
    """Seconds and CPU seconds, of the whole and of a member."""
    with cluster() as folder:
        (folder / "text.txt").write_text("she sells sea shells by the sea shore. " * 200)
        (folder / "peer.py").write_text(textwrap.dedent(_PEER))
        data = ("data=text_files", "data.path=text.txt", "data.seq_len=32", "data.split=position")
        prepare = [sys.executable, str(ROOT / "jobs/prepare.py"), *data]
        subprocess.run(prepare, cwd=folder, check=True, capture_output=True)
        swept = (f"train.seed={','.join(map(str, range(MEMBERS)))}",)
        rows = [
            _row("ringshard", [str(ROOT / "jobs/train.py"), "-m", *data, *_ours(), *swept], folder)
        ]
        if find_spec("hydra_plugins.hydra_submitit_launcher"):
            peer = [str(folder / "peer.py"), "-m", *data, *_peer(), *swept]
            rows.append(_row("hydra-submitit-launcher", peer, folder))
        else:
            print("the peer is left out: pip install hydra-submitit-launcher==1.2.0")
    first = rows[0]
    return [row | {"times ours": row["seconds"] / first["seconds"]} for row in rows]


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


def _row(name: str, command: list[str], folder: Path) -> dict[str, Any]:
    began, before = time.perf_counter(), _cpu_s()
    process = subprocess.Popen([sys.executable, *command], cwd=folder, stdout=subprocess.DEVNULL)
    while process.poll() is None and len(slurm("squeue", "-h", "-r").splitlines()) < MEMBERS:
        time.sleep(0.2)
    if name == "ringshard":
        process.wait()
    seconds = time.perf_counter() - began
    jobs = len(slurm("squeue", "-h", "-r").splitlines())
    process.terminate()
    process.wait()
    if jobs != MEMBERS:
        raise RuntimeError(f"{name} has submitted {jobs} jobs")
    cpu = _cpu_s() - before
    slurm("scancel", "-u", "root")
    return {
        "launcher": name,
        "members": MEMBERS,
        "seconds": seconds,
        "ms a member": 1e3 * seconds / MEMBERS,
        "CPU ms a member": 1e3 * cpu / MEMBERS,
    }


def _cpu_s() -> float:
    """Of the children that have ended; squeue's is in it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
