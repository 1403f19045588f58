"""One attempt on Slurm whose end is waited for: what is no run of a sweep."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringshard.config.schema.job import Job
from ringshard.launch.freeze import write_attempt
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.slurm import queue
from ringshard.launch.slurm.batches import Planned, batches
from ringshard.launch.slurm.start import tell_unused
from ringshard.launch.slurm.submission import submit, submitting
from ringshard.launch.snapshot import snapshot
from ringshard.launch.state import QueueWatch, job_id, state

_EVERY_S = 1.0


def run_one(
    run: RunDir, job: Job, module: str, configs: Mapping[str, Any], overrides: list[str]
) -> Outcome | None:
    """Submits the first attempt of a run and waits; Ctrl-C cancels it. None: nobody told why it
    ended."""
    root = Path(job.output.root)
    tell_unused(job)
    with submitting(root):
        code = snapshot(job.launcher.snapshot, job.user, root)
        (submission,) = batches([Planned(job, run, 1, module)], code.source, [], 1)
        told = submission.submitted(0)
        job_number = submit(
            root,
            submission,
            lambda: write_attempt(run.attempt(1), configs, job.user, overrides, told),
            lambda: run.discard_attempt(whole=True),
        )
    print(f"job {job_number} is submitted, its end is waited for", flush=True)
    watched = QueueWatch()
    try:
        while state(run, watched.jobs([run])).lives:
            time.sleep(_EVERY_S)
    except KeyboardInterrupt:
        try:
            queue.cancel([job_id(run) or job_number])
        except queue.SlurmError as error:
            print(f"job {job_number} goes on ({error}): scancel it", file=sys.stderr)
        raise
    return run.outcome()
