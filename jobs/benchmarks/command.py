"""Runs of `jobs/train.py` as a user starts them."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def train(*overrides: str) -> dict[str, Any]:
    """Trains in a folder of its own; returns the run's result.json. Raises when the job fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "jobs/train.py"), f"output.root={folder}"]
        command += ["tracking=jsonl", *overrides]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
        (result,) = Path(folder).glob("runs/*/attempts/1/result.json")
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return found
