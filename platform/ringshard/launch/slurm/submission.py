"""Jobs on their way to Slurm: what is noted before sbatch, and looked up after a crash in between.

`ROOT/slurm/NAME/` holds a submission: submission.json, and the script, pickles and logs of
submitit. Its name is the job's name in Slurm. As long as `ROOT/slurm/open/NAME` is there, nobody
knows whether sbatch took it.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock
from submitit import SlurmExecutor
from submitit.core.utils import FailedJobError, FailedSubmissionError

from ringshard.errors import ConfigError
from ringshard.files import read_json, write_json
from ringshard.launch.environment import in_environment, slurm_environment
from ringshard.launch.rundir import RunDir
from ringshard.launch.slurm import queue
from ringshard.launch.slurm.queue import SlurmError
from ringshard.launch.slurm.refusal import refusal
from ringshard.launch.slurm.request import Request
from ringshard.launch.slurm.task import Task


class Called(Protocol):
    """What is pickled."""

    def __call__(self) -> None:
        """Called on the nodes."""


@dataclass(frozen=True)
class Submission:
    """One sbatch: a job, or an array of jobs that ask for the same."""

    request: Request
    tasks: Sequence[Called]
    job_id: str | None = None
    """Of the whole; null: sbatch was not called, or nobody knows."""

    @property
    def runs(self) -> list[Task]:
        """Those of the tasks that are runs."""
        return [task for task in self.tasks if isinstance(task, Task)]

    def submitted(self, index: int) -> dict[str, Any]:
        """What the attempt of the task `index` says in its submitted.json."""
        return {
            "submission": str(self.request.folder),
            "index": index if len(self.tasks) > 1 else None,
        }


def name_of(title: str, members: list[tuple[str, int]]) -> str:
    """A name that no other submission has: the same run is never submitted twice as one attempt."""
    digest = hashlib.sha256(json.dumps(members).encode()).hexdigest()
    return f"{title}-{digest[:8]}"


def folder_of(root: Path, name: str) -> Path:
    """Where a submission lies."""
    return root / "slurm" / name


@contextmanager
def submitting(root: Path) -> Iterator[None]:
    """One command at a time submits below an output root; what an earlier one left open is settled
    first."""
    (root / "slurm" / "open").mkdir(parents=True, exist_ok=True)
    with FileLock(root / "slurm" / "lock"):
        for mark in sorted((root / "slurm" / "open").iterdir()):
            _settle(root, mark)
        yield


def submit(
    root: Path,
    submission: Submission,
    write: Callable[[], None],
    take_back: Callable[[], None] = lambda: None,
) -> str:
    """Submits, and returns the id of the job. To be called within `submitting`.

    write: makes what the job will need, once the submission is noted; take_back: undoes it where
    sbatch refuses, which raises ConfigError with its words.
    """
    folder = submission.request.folder
    folder.mkdir(parents=True, exist_ok=True)
    mark = root / "slurm" / "open" / folder.name
    mark.touch()
    _note(submission)
    write()
    try:
        job_id = _sbatch(submission)
    except ConfigError as error:
        take_back()
        with suppress(SlurmError):  # the mark stays
            queue.cancel(_jobs_named(folder.name))
            if not re.search("timed out|zero bytes", str(error), re.I):  # else it may still come
                mark.unlink()
        raise
    _note(replace(submission, job_id=job_id))
    mark.unlink()
    return job_id


def _sbatch(submission: Submission) -> str:
    request = submission.request
    executor = SlurmExecutor(request.folder, python=request.python)
    executor.update_parameters(**request.parameters)
    try:
        with in_environment(slurm_environment()), _silent(), executor.batch():
            jobs = [executor.submit(task) for task in submission.tasks]
    except (FailedJobError, FailedSubmissionError) as error:
        raise ConfigError(refusal(str(error), len(submission.tasks))) from error
    job_id: str = jobs[0].job_id.split("_")[0]
    return job_id


@contextmanager
def _silent() -> Iterator[None]:
    """submitit repeats what sbatch says, which the sentence of an error holds already."""
    with redirect_stderr(StringIO()), redirect_stdout(StringIO()):
        yield


def _note(submission: Submission) -> None:
    members = [[task.run_dir, task.attempt] for task in submission.runs]
    told = {"job_id": submission.job_id, "members": members}
    write_json(submission.request.folder / "submission.json", told)


def _settle(root: Path, mark: Path) -> None:
    """A command died between its sbatch and its note: the job is kept if it has begun, else
    cancelled, for its pickles may be missing."""
    file = root / "slurm" / mark.name / "submission.json"
    told = read_json(file) or {"members": []}
    jobs = _jobs_named(mark.name)
    begun = [_started_as(RunDir(Path(path)), attempt) for path, attempt in told["members"]]
    if jobs and any(begun):
        write_json(file, told | {"job_id": jobs[0]})
    else:
        queue.cancel(jobs)
    mark.unlink()


def _jobs_named(name: str) -> list[str]:
    """The ids of the jobs of a submission that have not ended; an array has one."""
    found = (job for job in queue.read_queue().values() if job.name == name)
    return list(dict.fromkeys(job.job_id.split("_")[0] for job in found))


def _started_as(run: RunDir, attempt: int) -> bool:
    return (run.attempt(attempt) / "started.json").exists()
