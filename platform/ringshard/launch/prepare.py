"""The data of a job, prepared before its first file is written, in a process without Hydra."""

import json
import os
import subprocess
import sys
from typing import Any

from ringshard.config.leaves import leaves
from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import plain
from ringshard.errors import ConfigError
from ringshard.launch.environment import clean


class PreparationError(Exception):
    """The preparation ended with this exit code and has told the user why."""

    def __init__(self, code: int) -> None:
        super().__init__(f"data preparation ended with exit code {code}")
        self.code = code


def prepare_all(jobs: list[Job]) -> None:
    """Fills `data.prepared` and `data.digest` of every job; equal data are prepared once.

    Raises PreparationError after the preparation has said its sentence on stderr, and ConfigError
    where a model's vocabulary is too small for the data.
    """
    known: dict[str, dict[str, Any]] = {}
    for job in jobs:
        key = json.dumps(leaves(job.data), sort_keys=True)
        prepared = known[key] = known.get(key) or _prepare(job)
        job.data.prepared, job.data.digest = prepared["prepared"], prepared["digest"]
        _check_vocabulary(job, prepared["vocab_size"])


def _prepare(job: Job) -> dict[str, Any]:
    """Progress and errors go straight to the terminal; the answer is the last line of stdout."""
    process = subprocess.run(
        [sys.executable, "-m", "ringshard.data.prepare"],
        input=json.dumps(plain(job)).encode(),
        stdout=subprocess.PIPE,
        env={**clean(os.environ), "PYTHONSAFEPATH": "1"},
    )
    if process.returncode:
        raise PreparationError(process.returncode)
    answer: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return answer


def _check_vocabulary(job: Job, needed: int) -> None:
    size = job.model.config.get("vocab_size")
    if size is not None and size < needed:
        raise ConfigError(
            f"model.config.vocab_size={size} is less than the {needed} token ids of the data:"
            f" leave it out, or set it to {needed} or more"
        )
