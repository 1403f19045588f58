"""Where a job runs: nodes, processes, devices and what they can do."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Scheduler(Enum):
    """Who starts the processes."""

    local = "local"
    slurm = "slurm"


class Device(Enum):
    """What the processes compute on; it decides the communication backend (gloo or NCCL)."""

    cpu = "cpu"
    cuda = "cuda"


@dataclass
class Slurm:
    """What is asked of Slurm; only `hardware.scheduler=slurm` reads it."""

    partition: str | None = None
    """Partition; null takes the cluster's default."""
    account: str | None = None
    """Account that is charged."""
    qos: str | None = None
    """Quality of service."""
    time_minutes: int | None = None
    """Wall-clock limit [minutes]."""
    constraint: str | None = None
    """Node features, as in sbatch --constraint."""
    exclusive: bool = False
    """Whether whole nodes are taken."""
    memory_gb: float | None = None
    """Memory of each node, 0 for all that it has; null takes the cluster's default [GB]."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further flags of sbatch by name, as in {reservation: night}; true for one without a value.
    They go before what is asked otherwise, and null leaves that out: {gpus-per-node: null, gres:
    "gpu:8"}."""
    prepare_partition: str | None = None
    """Partition of the job that prepares data, where they are missing; null: the same."""
    setup: list[str] = field(default_factory=list)
    """Shell lines that the job begins with, as in `module load cuda`."""
    python: str | None = None
    """Python of the nodes; null: the one that submits."""
    container: list[str] = field(default_factory=list)
    """Command in front of the ranks' own, as in [apptainer, exec, --nv, ringshard.sif]; the agent
    stays outside, where scontrol is."""
    container_python: str = "python"
    """Python inside the container."""


@dataclass
class Hardware:
    """One machine or one shape of allocation."""

    scheduler: Scheduler = Scheduler.local
    """local: processes of this machine, in the foreground; slurm: submitted."""
    device: Device = Device.cpu
    """cpu or cuda."""
    nodes: int = 1
    """Number of nodes."""
    processes_per_node: int = 2
    """Processes on each node [one per device]."""
    threads_per_process: int = 1
    """CPU threads of each process [threads]."""
    peak_tflops: dict[str, float] = field(default_factory=dict)
    """Dense peak of one device by format, {fp32: …, bf16: …} [TFLOP/s]; one that is not given is
    measured at the start by a matrix product."""
    link_gbytes_per_s: dict[str, float] = field(default_factory=dict)
    """What one device sends at, one way: {node: to a device of its node, network: to another node};
    one that is not given is taken to be no limit [GB/s]."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables of the processes, beside those of the shell, where secrets are
    exported."""
    slurm: Slurm = field(default_factory=Slurm)
    """Slurm's part of the request."""

    @property
    def world_size(self) -> int:
        """Number of processes of the job."""
        return self.nodes * self.processes_per_node
