"""A job's time limit: how long before it a run is told, by Slurm or by the job's own clock."""

import math
import time
from dataclasses import dataclass
from pathlib import Path

from ringshard.config.schema.job import Job
from ringshard.launch.rundir import RunDir
from ringshard.launch.slurm import queue
from ringshard.tracking.spool import read_spool, spools

LEAD_S = 120
"""Notice before the time limit as long as no checkpoint was measured [s]."""
_LOOK_S = 1.0
"""How often the file of the first step is looked for [s]."""
_AGAIN_S = 60.0
"""When Slurm is asked again that did not answer [s]."""


def lead_s(job: Job, run: RunDir) -> int:
    """How long before its time limit a job is told, as far as is known now [s]; half of the time at
    most."""
    lead = job.launcher.lead_s or _measured(run) or LEAD_S
    limit = job.hardware.slurm.time_minutes
    return lead if limit is None else max(1, min(lead, limit * 30))


def _measured(run: RunDir) -> int | None:
    """Three times the longest checkpoint that the run recorded, and a minute [s]."""
    took = [
        record.metrics["checkpoint/write_s"]
        for spool in spools(run.path)
        for record, _ in read_spool(spool.path)
        if record and "checkpoint/write_s" in record.metrics
    ]
    return round(3 * max(took)) + 60 if took else None


def end_of(facts: dict[str, str]) -> float | None:
    """When a job reaches its limit, of what scontrol knows of it [s since 1970]; None: never."""
    try:
        return time.mktime(time.strptime(facts.get("EndTime", ""), "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


@dataclass
class Clock:
    """Tells a job of its limit where Slurm would too late: its own signal comes as long before as
    was asked for at submission, also when the job is queued again and saving is known to take
    longer."""

    job_id: str
    lead_s: int
    first_step: Path
    """A file that is there once there is something to save."""
    at: float = 0.0
    """When to look next, which is when to stop unless the limit was moved [s since 1970]."""

    def rings(self) -> bool:
        """Whether it is time to save; true once."""
        if time.time() < self.at:
            return False
        if not self.first_step.exists():
            self.at = time.time() + _LOOK_S
            return False
        try:
            end = end_of(queue.facts(self.job_id))
        except queue.SlurmError:
            self.at = time.time() + _AGAIN_S
            return False
        self.at = math.inf if end is None else end - self.lead_s
        if time.time() < self.at:
            return False
        self.at = math.inf
        return True
