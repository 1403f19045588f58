"""`ringshard …` as a user gives it."""

import subprocess
import sys


def ringshard(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """What it prints, and its exit code."""
    command = [sys.executable, "-m", "ringshard.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
