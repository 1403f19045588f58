"""Which runs go to Slurm together: those that ask for the same share an array."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ringshard.config.schema.job import Job
from ringshard.launch.rundir import RunDir
from ringshard.launch.slurm import queue
from ringshard.launch.slurm.request import Request, python_of, resources
from ringshard.launch.slurm.submission import Submission, folder_of, name_of
from ringshard.launch.slurm.task import Task
from ringshard.tracking.spool import read_spool, spools

LEAD_S = 120
"""Notice before the time limit as long as no checkpoint was measured [s]."""


@dataclass(frozen=True)
class Planned:
    """A run that is to be submitted."""

    job: Job
    dir: RunDir
    attempt: int
    module: str = "ringshard.train"

    @property
    def lead_s(self) -> int:
        """How long before its time limit the job is told [s]; half of the time at most."""
        asked, limit = self.job.launcher.lead_s, self.job.hardware.slurm.time_minutes
        lead = asked or _measured(self.dir) or LEAD_S
        return lead if limit is None else max(1, min(lead, limit * 30))

    def task(self) -> Task:
        """What the nodes call."""
        run, kill_wait_s = str(self.dir.path), queue.number("KillWait", 30)
        return Task(run, self.attempt, self.module, self.lead_s, kill_wait_s)


def batches(
    runs: list[Planned], source: Path | None, dependencies: list[str], max_array: int
) -> Iterator[Submission]:
    """Submissions of at most `max_array` members each, every one with the resources of its own."""
    alike: dict[str, list[Planned]] = {}
    for run in runs:
        key = json.dumps([_resources(run, source, dependencies), run.job.output.name])
        alike.setdefault(key, []).append(run)
    for group in alike.values():
        for begin in range(0, len(group), max_array):
            yield _submission(group[begin : begin + max_array], source, dependencies)


def _submission(members: list[Planned], source: Path | None, dependencies: list[str]) -> Submission:
    job = members[0].job
    name = name_of(job.output.name, [(str(run.dir.path), run.attempt) for run in members])
    asked = _resources(members[0], source, dependencies)
    folder = folder_of(Path(job.output.root), name)
    request = Request(name, folder, asked, python_of(job))
    return Submission(request, [run.task() for run in members])


def _resources(run: Planned, source: Path | None, dependencies: list[str]) -> dict[str, Any]:
    parallel = run.job.launcher.max_parallel
    return resources(run.job, run.lead_s, source, dependencies, parallel)


def after(submission: Submission, job_id: str) -> Submission:
    """The same, to begin once another job is over, however it ends."""
    asked = dict(submission.request.resources)
    before = asked.get("dependency")
    asked["dependency"] = f"{before},afterany:{job_id}" if before else f"afterany:{job_id}"
    return replace(submission, request=replace(submission.request, resources=asked))


def _measured(run: RunDir) -> int | None:
    """Three times the longest checkpoint that the run recorded, and a minute [s]."""
    took = [
        record.metrics["checkpoint/write_s"]
        for spool in spools(run.path)
        for record, _ in read_spool(spool.path)
        if record and "checkpoint/write_s" in record.metrics
    ]
    return round(3 * max(took)) + 60 if took else None
