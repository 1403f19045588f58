"""From a job to what is asked of Slurm, and to the script of sbatch: pure functions."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from submitit.slurm.slurm import _make_sbatch_string

from ringshard.config.schema.hardware import Device
from ringshard.config.schema.job import Job

BLOCK = "env --block-signal=USR2,TERM,INT"
"""In front of Python: an early signal waits until the agent can answer, instead of ending Python
while it starts. Coreutils have it since 8.31."""


@dataclass(frozen=True)
class Request:
    """What jobs of one array share."""

    name: str
    """Job name in Slurm, unique to the submission: by it a lost one is found again."""
    folder: Path
    """Where script, pickles and logs lie."""
    resources: dict[str, Any]
    """Parameters of submitit's SlurmExecutor."""
    python: str
    """Command in front of `-m`."""

    def script(self, members: int) -> str:
        """What sbatch is given: the same text that submitit writes."""
        command = f"{self.python} -u -m submitit.core._submit {shlex.quote(str(self.folder))}"
        count = members if members > 1 else None
        return _make_sbatch_string(command, self.folder, map_count=count, **self.parameters)

    @property
    def parameters(self) -> dict[str, Any]:
        """Of submitit's SlurmExecutor."""
        return self.resources | {"job_name": self.name}


def python_of(job: Job) -> str:
    """The nodes' Python, which begins with its stop signals blocked."""
    return f"{BLOCK} {shlex.quote(job.hardware.slurm.python or sys.executable)}"


def resources(
    job: Job, lead_s: int, source: Path | None, dependencies: list[str], parallel: int | None
) -> dict[str, Any]:
    """The parameters of submitit for a job: members with equal ones may share an array.

    source: folder that Ringshard is imported from; dependencies: as in afterok:12.
    """
    hardware, slurm = job.hardware, job.hardware.slurm
    cpus = hardware.processes_per_node * hardware.threads_per_process
    asked: dict[str, Any] = {
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
        "exclusive": slurm.exclusive or None,
        "dependency": ",".join(dependencies) or None,
        "nodes": hardware.nodes,
        "ntasks_per_node": 1,
        "cpus_per_task": cpus,
        "gpus_per_node": hardware.processes_per_node if hardware.device is Device.cuda else None,
        "mem": _memory(slurm.memory_gb),
        "signal_delay_s": lead_s,
        "stderr_to_stdout": True,
        "setup": [*slurm.setup, *_import_from(source)] or None,
        "array_parallelism": parallel or 100_000,
        # srun does not take over --cpus-per-task from sbatch since Slurm 22.05.
        "srun_args": ["--kill-on-bad-exit=1", f"--wait={wait_s(job)}", f"--cpus-per-task={cpus}"],
    }
    more: dict[str, Any] = {"requeue": True}
    if dependencies:
        more["kill_on_invalid_dep"] = "yes"
    more |= {_as_submitit(key): value for key, value in slurm.extra.items()}
    left_out = {key for key, value in more.items() if value is None}
    kept = {key: value for key, value in asked.items() if value is not None and key not in left_out}
    # Of these two submitit has defaults of its own.
    kept |= {"time": slurm.time_minutes, "wckey": None}
    told = {key: value for key, value in more.items() if value is not None}
    return kept | {"additional_parameters": told}


def _as_submitit(key: str) -> str:
    """Its spelling of a flag of sbatch: in any other, both would be in the script."""
    same = key.replace("-", "_")
    return "open-mode" if same == "open_mode" else same


def wait_s(job: Job) -> int:
    """How long the nodes wait for the first one, which may still ship points [s]."""
    return max(60, round(job.tracking.flush_timeout_s) + 30)


def _memory(gigabytes: float | None) -> str | None:
    return None if gigabytes is None else f"{round(gigabytes * 1024)}M"


def _import_from(source: Path | None) -> list[str]:
    path = "${PYTHONPATH:+:$PYTHONPATH}"
    return [f"export PYTHONPATH={shlex.quote(str(source))}{path}"] if source else []
