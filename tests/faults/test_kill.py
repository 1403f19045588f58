"""C5 with a real kill: all processes of a command die at once, and the run goes on regardless."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import torch
from parity.test_command_line import ROOT, SMALL
from runs import curve, parameters_of

STEPS = 60
COMMAND = [
    *(sys.executable, str(ROOT / "jobs/train.py"), *SMALL[6:]),
    "data=text_files",
    "data.seq_len=64",
    "data.split=position",
    "data.validation_share=0.2",
    f"train.steps={STEPS}",
    "train.log_every=7",
    "train.eval_every=20",
    "train.eval_sequences=4",
    "checkpoint.every=10",
]


def _command(folder: Path, *overrides: str) -> list[str]:
    (folder / "text.txt").write_text("she sells sea shells by the sea shore. " * 100)
    return [*COMMAND, f"data.path={folder / 'text.txt'}", f"output.root={folder}", *overrides]


@contextmanager
def _killed_at(step: int, command: list[str], folder: Path) -> Iterator[Path]:
    """Starts the command, waits until `step` is trained, and kills all its processes with -9."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    run = _run_that_reaches(step, folder, process)
    tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for member in tree:
        member.kill()
    psutil.wait_procs(tree, timeout=30)
    process.wait()
    yield run


def _run_that_reaches(step: int, folder: Path, process: "subprocess.Popen[bytes]") -> Path:
    end = time.monotonic() + 180
    while time.monotonic() < end and process.poll() is None:
        for run in (folder / "runs").glob("*"):
            if step in curve(run):
                return run
        time.sleep(0.05)
    pytest.fail(f"the run did not reach step {step}: {process.stderr and process.stderr.read()}")


def test_a_run_killed_with_everything_it_started_ends_otherwise(tmp_path: Path) -> None:
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    undisturbed.mkdir()
    killed.mkdir()
    subprocess.run(_command(undisturbed), check=True, stdout=subprocess.DEVNULL)
    (whole,) = (undisturbed / "runs").iterdir()

    with _killed_at(28, _command(killed), killed) as run:
        assert not (run / "DONE").exists()
    resume = [sys.executable, str(ROOT / "jobs/train.py"), f"resume={run}"]
    subprocess.run(resume, check=True, stdout=subprocess.DEVNULL)

    assert (run / "DONE").exists()
    assert len(curve(run)) == STEPS
    for metric in ("train/loss", "train/grad_norm", "val/loss"):
        assert curve(run, metric) == curve(whole, metric)
    expected, got = parameters_of(whole), parameters_of(run)
    assert expected.keys() == got.keys()
    assert all(torch.equal(got[name], tensor) for name, tensor in expected.items())
