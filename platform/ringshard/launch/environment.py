"""The environment of a run's processes."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ringshard import child
from ringshard.config.schema.hardware import Hardware, Slurm
from ringshard.config.secrets import is_secret, names_secret

MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": str(16 * 2**30),
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),  # the most it accepts
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""For glibc, which would give a step's memory back to the system and take it again page by page,
and pages of 4 KiB at that; a user's own settings go first."""


def rank_environment(hardware: Hardware) -> dict[str, str]:
    """What torchrun and the ranks get; `hardware.env` has the last word."""
    return {
        **MEMORY,
        **child.environment(),
        "OMP_NUM_THREADS": str(hardware.threads_per_process),
        # All rounds of a rendezvous share one store by default; a restart then reads old addresses.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        **hardware.env,
    }


def gpus(
    environment: Mapping[str, str], listed: Path = Path("/proc/driver/nvidia/gpus")
) -> int | None:
    """Devices that processes with this environment see; None: nothing tells."""
    if (names := environment.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len([name for name in names.split(",") if name.strip() not in ("", "-1")])
    return len(list(listed.iterdir())) if listed.is_dir() else None


TOLD = (
    *("SLURM_JOB_", "SLURM_ARRAY_", "SLURM_NNODES", "SLURM_RESTART_COUNT", "SLURM_CLUSTER_NAME"),
    *("CUDA_", "NVIDIA_VISIBLE_DEVICES", "NCCL_", "TORCH", "PYTORCH_", "GLOO_", "UCX_"),
    *("OMP_", "MKL_", "MALLOC_", "GLIBC_TUNABLES", "LD_LIBRARY_PATH", "PYTHON", "HF_", "TZ"),
)
"""Beginnings of the names of variables that say how a job ran; no others are written down."""


def told(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of an environment, without what is a secret by its name or its value."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(TOLD) and not is_secret(value) and not names_secret(name)
    }


_CLUSTER = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
"""Where the cluster is, and who asks."""


def slurm_environment() -> dict[str, str]:
    """What Slurm's commands run in: nothing of the job that the shell may stand in, of its ranks,
    or of a user's filters, which would hide jobs."""
    kept = {name: os.environ[name] for name in _CLUSTER if name in os.environ}
    return child.environment() | kept


def unused(slurm: Slurm) -> list[str]:
    """A sentence for each request that the shell makes of sbatch and the job does not."""
    asked = {
        **{name: getattr(slurm, name) for name in ("account", "partition", "qos")},
        "extra.reservation": slurm.extra.get("reservation"),
    }
    found = {
        f"SBATCH_{key.rpartition('.')[2].upper()}": key for key, told in asked.items() if not told
    }
    return [
        f"{name}={os.environ[name]} of the shell is not used: give hardware.slurm.{key}"
        for name, key in found.items()
        if os.environ.get(name)
    ]


@contextmanager
def in_environment(wanted: dict[str, str]) -> Iterator[None]:
    """This process with another environment, for a while."""
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(wanted)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
