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


@pytest.mark.rotated(2)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("end", ["| head -c 1 >&2", ">&-", ">&- 2>&- <&-", "> /dev/full"])
def test_a_command_whose_output_nobody_takes_fails(command: str, end: str, tmp_path: Path) -> None:
    script = f"set -o pipefail; {command} {end}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr) <= 1


CHILD = """
import subprocess, sys
from ringshard.streams import steady
with steady():
    said = "import sys; print('heard'); sys.stderr.write('heard'); sys.exit(sys.stdout is None)"
    sys.exit(subprocess.run([sys.executable, "-c", said]).returncode)
"""


@pytest.mark.parametrize("end", [">&-", ">&- 2>&- <&-"])
def test_what_a_command_starts_has_no_stdout_either(end: str, tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    script = f"{sys.executable} child.py {end}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
