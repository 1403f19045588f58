"""The ranks of one machine, started by torchrun in a session of its own."""

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from ringshard.config.schema.job import Job
from ringshard.launch.environment import rank_environment
from ringshard.launch.orphans import die_with_parent
from ringshard.launch.stop import blocked

STOP = signal.SIGUSR2
"""What tells a rank to stop at the next step boundary."""


def command(job: Job, run_dir: Path, attempt: int, module: str = "ringshard.train") -> list[str]:
    """torchrun's command line; localhost:0 takes a free port, so that two runs never clash."""
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        "--nnodes=1",
        f"--nproc-per-node={job.hardware.processes_per_node}",
        "--max-restarts=0",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
        f"--rdzv-id={run_dir.name}-{attempt}",
        "--monitor-interval=0.1",
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
            env=rank_environment(job.hardware),
            start_new_session=True,
            preexec_fn=die_with_parent,
        )


def tell_ranks(torchrun: "subprocess.Popen[bytes]", told: set[int]) -> None:
    """Sends the stop signal to each rank once; one that still starts keeps it pending."""
    with suppress(psutil.NoSuchProcess):
        for rank in psutil.Process(torchrun.pid).children():
            if rank.pid not in told:
                told.add(rank.pid)
                with suppress(psutil.NoSuchProcess):
                    rank.send_signal(STOP)
