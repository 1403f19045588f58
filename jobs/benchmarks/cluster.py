"""The Slurm of `infra/slurm` for the time of a benchmark (root, Debian)."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm.cluster import started

ROOT = Path(__file__).parents[2]
MAX_ARRAY = 1001
"""Slurm's default of MaxArraySize."""


@contextmanager
def cluster() -> Iterator[Path]:
    """A folder on the disk of a cluster of four nodes, which SLURM_CONF names meanwhile."""
    os.environ["SLURM_MAX_ARRAY"] = str(MAX_ARRAY)
    with started() as found:
        folder = found.work.parent / "work"
        folder.mkdir()
        yield folder


def slurm(*command: str) -> str:
    """What a command of Slurm prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
