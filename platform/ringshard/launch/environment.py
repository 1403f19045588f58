"""The environment of a run's processes: the shell's, without what other launchers left there."""

import os
from collections.abc import Mapping

from ringshard.config.schema.hardware import Hardware

# A RANK or MASTER_PORT exported in the shell, or the allocation an interactive job stands in, would
# make the ranks look for a world that is not theirs; a stale MLFLOW_RUN_ID would overwrite a run.
_RANKS = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME")
_WORLD = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR")
_RUN = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_TRACKING_URI")
STALE = frozenset((*_RANKS, *_WORLD, "MASTER_PORT", *_RUN, "HYDRA_FULL_ERROR", "HYDRA_MAIN_MODULE"))
STALE_PREFIXES = (
    "SLURM",
    "SBATCH_",
    "SRUN_",
    "SUBMITIT_",
    "PMI_",
    "PMIX_",
    "TORCHELASTIC_",
    "PET_",
)


def clean(shell: Mapping[str, str]) -> dict[str, str]:
    """A shell's environment without stale variables."""
    return {
        name: value
        for name, value in shell.items()
        if name not in STALE and not name.startswith(STALE_PREFIXES)
    }


def rank_environment(hardware: Hardware) -> dict[str, str]:
    """What torchrun and the ranks get; `hardware.env` has the last word."""
    return {
        **clean(os.environ),
        "OMP_NUM_THREADS": str(hardware.threads_per_process),
        # All rounds of a rendezvous share one store by default; a restart then reads old addresses.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "PYTHONSAFEPATH": "1",  # a random.py in the user's folder must not shadow Python's own
        **hardware.env,
    }
