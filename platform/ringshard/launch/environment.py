"""The environment of a run's processes."""

from ringshard import child
from ringshard.config.schema.hardware import Hardware

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
