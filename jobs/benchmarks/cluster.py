"""The Slurm of `infra/slurm` for the time of a benchmark (root, Debian)."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
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


def prepare(folder: Path, data: Sequence[str], sentences: int) -> None:
    """A text of so many sentences, text.txt, prepared as `data` says."""
    (folder / "text.txt").write_text("she sells sea shells by the sea shore. " * sentences)
    command = [sys.executable, str(ROOT / "jobs/prepare.py"), *data]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def slurm(*command: str) -> str:
    """What a command of Slurm prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
