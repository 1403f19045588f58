"""Data that are missing are prepared once, by a job on one CPU node; the runs wait for it.

What came out lies in the submission's folder; the first node of a run takes it from there.
"""

import copy
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from ringshard import child
from ringshard.config.leaves import leaves
from ringshard.config.schema.hardware import Device
from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import plain
from ringshard.errors import ConfigError
from ringshard.files import read_json, write_json
from ringshard.launch.slurm import queue
from ringshard.launch.slurm.limit import LEAD_S
from ringshard.launch.slurm.request import Request, python_of, resources
from ringshard.launch.slurm.submission import Submission, folder_of, submit

_ANSWER, _ERROR, _JOB = "prepared.json", "error.json", "job.json"


@dataclass(frozen=True)
class Preparing:
    """A job that prepares data."""

    job_id: str
    folder: str
    """Where its answer will lie."""


@dataclass(frozen=True)
class Preparation:
    """What submitit pickles: called on the node."""

    folder: str

    def __call__(self) -> None:
        """Prepares the data of job.json; leaves the answer, or the sentence that says why not."""
        folder = Path(self.folder)
        try:
            answer = child.ask("ringshard.data.prepare", about=read_json(folder / _JOB))
        except (ConfigError, child.ChildError) as error:
            sentence = error.last_line if isinstance(error, child.ChildError) else str(error)
            write_json(folder / _ERROR, {"error": sentence})
            raise
        write_json(folder / _ANSWER, answer)


def preparation(job: Job, root: Path, source: Path | None) -> Submission:
    """What sbatch is given for the data of a job; its name is that of the data."""
    key = json.dumps([str(root), leaves(job.data), plain(job.user)], sort_keys=True)
    name = f"data-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    folder = folder_of(root, name)
    asked = resources(_on_one_cpu(job), LEAD_S, source, [], None)
    request = Request(name, folder, asked, python_of(job))
    return Submission(request, [Preparation(str(folder))])


def prepared_by(job: Job, root: Path, source: Path | None) -> Preparing:
    """The job that prepares the data of another; one that waits or runs already is taken."""
    submission = preparation(job, root, source)
    name, folder = submission.request.name, submission.request.folder
    for queued in queue.read_queue().values():
        if queued.name == name:
            return Preparing(queued.job_id, str(folder))

    def write() -> None:
        (folder / _ERROR).unlink(missing_ok=True)
        write_json(folder / _JOB, plain(job))

    return Preparing(submit(root, submission, write), str(folder))


def _on_one_cpu(job: Job) -> Job:
    small = copy.deepcopy(job)
    small.hardware.nodes = small.hardware.processes_per_node = 1
    small.hardware.device = Device.cpu
    slurm = small.hardware.slurm
    if slurm.prepare_partition:  # which may have neither of these
        slurm.partition, slurm.qos, slurm.constraint = slurm.prepare_partition, None, None
    slurm.exclusive, slurm.memory_gb, slurm.extra = False, None, {}
    return small
