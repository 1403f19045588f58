"""A command whose output nobody takes ends well."""

import subprocess
import sys
from pathlib import Path

import pytest
from runs import curve
from tracking.conftest import RunFolder
from tracking.shipped import history, remote

from ringshard.report.runs import find

ROOT = Path(__file__).parents[1]
TRAIN = f"{sys.executable} {ROOT / 'jobs/train.py'}"
COMMANDS = [
    f"{TRAIN} --cfg job",
    f"{TRAIN} --help",
    f"{TRAIN} --dry-run tracking=jsonl",
    f"{sys.executable} -m ringshard.cli --help",
]


@pytest.mark.rotated(3)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("end", ["| head -c 1 >&2", ">&-", ">&- 2>&- <&-", "> /dev/full"])
def test_a_command_whose_output_nobody_takes_fails(command: str, end: str, tmp_path: Path) -> None:
    script = f"set -o pipefail; {command} {end}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr) <= 1


TINY = (
    "data=text_files data.path=text.txt data.seq_len=32 data.split=position train.steps=6"
    " parallelism=single hardware.processes_per_node=1 train.log_every=1 checkpoint.at_end=false"
    " 'model.config={hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1,"
    " num_attention_heads: 2, num_key_value_heads: 2}'"
)


@pytest.mark.rotated(3)
@pytest.mark.parametrize("end", ["| head -n 1", ">&- 2>&-"])
def test_a_run_whose_output_nobody_takes_has_no_end_in_mlflow(end: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("she sells sea shells by the sea shore. " * 100)
    script = f"set -o pipefail; {TRAIN} {TINY} {end}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "outputs/runs").iterdir()
    run = RunFolder.of(path, f"sqlite:///{tmp_path / 'outputs/mlflow.db'}", "ringshard")
    assert remote(run).info.status == "FINISHED"
    assert dict(history(run)) == curve(path) and len(curve(path)) == 6
    assert find([path])[0].state == "done"


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
