"""Who is blamed: real ranks, of which one is killed."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
from runs import curve

from ringshard.launch.failure import first_failure

CHECKOUT = Path(__file__).resolve().parents[2]
MODEL = "model.config={hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2}"
SMALL = ("data=text_files", "data.path=text.txt", "data.seq_len=16", "data.split=position")
ENDLESS = ("train.steps=100000", "train.log_every=1", "train.eval_every=0", "tracking=jsonl")


def _rank_1(agent: int) -> psutil.Process:
    for process in psutil.Process(agent).children(recursive=True):
        if process.environ().get("RANK") == "1":
            return process
    raise AssertionError("rank 1 does not run")


def test_ranks_that_did_not_start_are_told_of_without_a_reason(tmp_path: Path) -> None:
    text = (
        "Traceback (most recent call last):\n  File x\nelastic.RendezvousError: port 7 is taken\n"
    )
    (tmp_path / "torchrun.log").write_text(text + "[W1] a word of the logger\n")
    told = first_failure(tmp_path).message
    assert told.startswith(
        "the ranks did not start (elastic.RendezvousError: port 7 is taken): see"
    )


def test_a_killed_rank_is_named_although_its_neighbour_tells_of_a_lost_connection(
    tmp_path: Path,
) -> None:
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 200)
    command = [sys.executable, str(CHECKOUT / "jobs/train.py"), *SMALL, *ENDLESS, MODEL]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 240
    while not any(5 in curve(run) for run in (tmp_path / "outputs/runs").glob("*")):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    _rank_1(process.pid).kill()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.rstrip().splitlines()[-1].startswith("rank 1 was killed by SIGKILL (out of memory?")
