"""A command whose output nobody takes ends well."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRAIN = f"{sys.executable} {ROOT / 'jobs/train.py'}"
COMMANDS = [
    f"{TRAIN} --cfg job",
    f"{TRAIN} --help",
    f"{TRAIN} --dry-run tracking=jsonl",
    f"{sys.executable} -m ringshard.cli --help",
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("end", ["| head -c 1 >&2", ">&-", ">&- 2>&- <&-", "> /dev/full"])
def test_a_command_whose_output_nobody_takes_fails(command: str, end: str, tmp_path: Path) -> None:
    script = f"set -o pipefail; {command} {end}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr) <= 1
