"""The ranks of one machine, started by torchrun in a session of its own."""

import os
import signal
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from ringshard import child
from ringshard.config.schema.job import Job
from ringshard.launch.environment import rank_environment
from ringshard.launch.stop import blocked

STOP = signal.SIGUSR2
"""What tells a rank to stop at the next step boundary."""


def command(job: Job, run_dir: Path, attempt: int, module: str = "ringshard.train") -> list[str]:
    """torchrun's command line; localhost:0 takes a free port, so that two runs never clash."""
    hardware = job.hardware
    return [
        *child.command("torch.distributed.run"),
        f"--nnodes={hardware.nodes}",
        f"--nproc-per-node={hardware.processes_per_node}",
        "--max-restarts=0",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={'localhost:0' if hardware.nodes == 1 else 'FIRST_NODE:29400'}",
        f"--rdzv-id={run_dir.name}-{attempt}",
        "--monitor-interval=0.1",
        f"--log-dir={run_dir / 'attempts' / str(attempt) / 'torchrun'}",  # not the temporary folder
        "--shutdown-timeout=5",  # once a rank has failed, the others wait for it in vain
        *("-m", module, str(run_dir), str(attempt)),
    ]


def start(job: Job, run_dir: Path, attempt: int, module: str) -> "subprocess.Popen[bytes]":
    """Starts torchrun with stop signals blocked, in the ranks until they can answer.

    The ranks inherit the terminal as stdout; what torchrun itself says goes to torchrun.log.
    """
    log = run_dir / "attempts" / str(attempt) / "torchrun.log"
    with log.open("wb") as noise, blocked(STOP):
        return subprocess.Popen(
            command(job, run_dir, attempt, module),
            stdin=subprocess.DEVNULL,
            stderr=noise,
            env={**rank_environment(job.hardware), "RINGSHARD_AGENT": str(os.getpid())},
            start_new_session=True,
            preexec_fn=partial(child.die_with, os.getpid()),
        )


def tell_ranks(torchrun: "subprocess.Popen[bytes]", told: set[int]) -> None:
    """Sends the stop signal to each rank once; one that still starts keeps it pending."""
    with suppress(psutil.NoSuchProcess):
        for rank in psutil.Process(torchrun.pid).children():
            if rank.pid not in told:
                told.add(rank.pid)
                with suppress(psutil.NoSuchProcess):
                    rank.send_signal(STOP)
