"""The ranks of one node, started by torchrun in a session of its own."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from ringshard import child
from ringshard.config.schema.job import Job
from ringshard.launch.environment import rank_environment
from ringshard.launch.stop import blocked

_MODULE = "torch.distributed.run"
STOP = signal.SIGUSR2
"""What tells a rank to stop at the next step boundary."""


@dataclass(frozen=True)
class Meeting:
    """Where and how the torchruns of a job find each other; by default there is one."""

    endpoint: str = "localhost:0"
    """host:port; port 0 takes a free one, so that two runs never clash."""
    name: str | None = None
    """What distinguishes it from others at the same place; null: run and attempt."""
    node: int = 0
    """This node's number; the first one keeps the store."""
    max_restarts: int = 0
    """How often the ranks are started again in place."""


ALONE = Meeting()


def command(
    job: Job,
    run_dir: Path,
    attempt: int,
    module: str = "ringshard.train",
    meeting: Meeting = ALONE,
) -> list[str]:
    """torchrun's command line on one node."""
    hardware, folder = job.hardware, run_dir / "attempts" / str(attempt)
    return [
        *_python(job),
        *("-m", _MODULE),
        f"--nnodes={hardware.nodes}",
        f"--nproc-per-node={hardware.processes_per_node}",
        f"--max-restarts={meeting.max_restarts}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={meeting.endpoint}",
        f"--rdzv-id={meeting.name or f'{run_dir.name}-{attempt}'}",
        *_host(hardware.nodes, meeting.node),
        "--monitor-interval=0.1",
        f"--log-dir={folder / 'torchrun'}",  # not the temporary folder
        "--shutdown-timeout=5",  # once a rank has failed, the others wait for it in vain
        *("-m", module, str(run_dir), str(attempt)),
    ]


def _python(job: Job) -> list[str]:
    slurm = job.hardware.slurm
    return [*slurm.container, slurm.container_python] if slurm.container else [sys.executable]


def _host(nodes: int, node: int) -> list[str]:
    """Who keeps the store is told: torchrun's guess by names waits for ever where a host has two.

    Nodes of one job may start minutes apart.
    """
    return [f"--rdzv-conf=is_host={int(node == 0)},join_timeout=900"] if nodes > 1 else []


def start(
    job: Job, run_dir: Path, attempt: int, module: str, meeting: Meeting = ALONE
) -> "subprocess.Popen[bytes]":
    """Starts torchrun with stop signals blocked, in the ranks until they can answer.

    The ranks inherit the terminal as stdout; what torchrun itself says goes to torchrun.log.
    """
    name = f"torchrun-{meeting.node}.log" if meeting.node else "torchrun.log"
    log = run_dir / "attempts" / str(attempt) / name
    # In a container, who is whose parent is the container's affair.
    agent = {} if job.hardware.slurm.container else {"RINGSHARD_AGENT": str(os.getpid())}
    with log.open("wb") as noise, blocked(STOP):
        return subprocess.Popen(
            command(job, run_dir, attempt, module, meeting),
            stdin=subprocess.DEVNULL,
            stderr=noise,
            env=rank_environment(job.hardware) | agent,
            start_new_session=True,
            preexec_fn=partial(child.die_with, os.getpid()),
        )


def ranks_of(torchrun: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """The ranks that are there; torchrun may have been started by a container's runtime, some of
    whose processes are called with its command line. Raises psutil.NoSuchProcess."""
    started = psutil.Process(torchrun.pid)
    inside = [process for process in started.children(recursive=True) if _is_torchrun(process)]
    parents = {process.ppid() for process in inside}
    innermost = next((process for process in inside if process.pid not in parents), started)
    return innermost.children()


def _is_torchrun(process: psutil.Process) -> bool:
    try:
        return _MODULE in process.cmdline()
    except psutil.Error:  # a zombie, or gone meanwhile
        return False


def tell_ranks(torchrun: "subprocess.Popen[bytes]", told: set[int]) -> None:
    """Sends the stop signal to each rank once; one that still starts keeps it pending."""
    with suppress(psutil.NoSuchProcess):
        for rank in ranks_of(torchrun):
            if rank.pid not in told:
                told.add(rank.pid)
                with suppress(psutil.NoSuchProcess):
                    rank.send_signal(STOP)
