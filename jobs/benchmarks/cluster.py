"""The Slurm of `infra/slurm` for the time of a benchmark (root, Debian)."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def cluster() -> Iterator[Path]:
    """A folder on the disk of a cluster of four nodes, which SLURM_CONF names meanwhile."""
    scripts = ROOT / "infra/slurm"
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # munged insists
        environment = {**os.environ, "SLURM_PORT_BASE": "19000"}
        up = [str(scripts / "up.sh"), str(folder / "c")]
        try:
            told = subprocess.run(up, env=environment, check=True, stdout=subprocess.PIPE)
            os.environ["SLURM_CONF"] = told.stdout.decode().strip().split("=", 1)[1]
            (folder / "work").mkdir()
            yield folder / "work"
        finally:
            subprocess.run([str(scripts / "down.sh"), str(folder / "c"), "--purge"], check=True)


def slurm(*command: str) -> str:
    """What a command of Slurm prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
