"""Which runs go to Slurm together: those that ask for the same share an array."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ringshard.config.schema.job import Job
from ringshard.launch.rundir import RunDir
from ringshard.launch.slurm import queue
from ringshard.launch.slurm.limit import lead_s
from ringshard.launch.slurm.request import Request, python_of, resources
from ringshard.launch.slurm.submission import Submission, folder_of, name_of
from ringshard.launch.slurm.task import Task


@dataclass(frozen=True)
class Planned:
    """A run that is to be submitted."""

    job: Job
    dir: RunDir
    attempt: int
    module: str = "ringshard.train"

    @property
    def lead_s(self) -> int:
        """How long before its time limit Slurm tells the job [s]."""
        return lead_s(self.job, self.dir)

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
