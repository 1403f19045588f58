"""A terminal gets a bar, a file or a pipe gets plain lines, and neither can stop a run."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import sys
from pathlib import Path
from ringshard.train.console import Console
console = Console(400, first_step=100, log=Path(sys.argv[1]))
console.start("tiny", {"run": "outputs/runs/tiny", "model": "llama, 1,234 parameters"})
for step in range(110, 131, 10):
    metrics = {"train/loss": 2.5, "train/lr": 1e-3, "perf/tokens_per_s": 12345.6, "perf/mfu": 0.123}
    console.step(step, metrics)
console.evaluation(130, {"val/loss": 2.25, "val/perplexity": 9.49})
console.note("saved step 130")
console.close()
print("the end", file=sys.stderr)
"""
STEP = "step 110/400  loss 2.5000  lr 1.00e-03   12,346 tok/s  mfu 12.3%  0:0"


def command(log: Path) -> list[str]:
    return [sys.executable, "-c", RUN, str(log)]


def on_a_terminal(log: Path, term: str = "xterm-256color") -> str:
    main, side = pty.openpty()
    env = os.environ | {"TERM": term, "COLUMNS": "100"}
    process = subprocess.Popen(command(log), stdout=side, env=env)
    os.close(side)
    shown = b""
    try:
        while chunk := os.read(main, 4096):
            shown += chunk
    except OSError:
        pass  # the other end is closed: the process has ended
    os.close(main)
    assert process.wait() == 0
    return shown.decode()


def test_a_pipe_gets_aligned_lines_without_escape_codes(tmp_path: Path) -> None:
    env = os.environ | {"FORCE_COLOR": "1"}
    done = subprocess.run(
        command(tmp_path / "log"), capture_output=True, text=True, check=True, env=env
    )
    assert "\x1b" not in done.stdout
    assert "tiny\n  run    outputs/runs/tiny\n  model  llama, 1,234 parameters\n" in done.stdout
    assert STEP in done.stdout
    assert "step 130/400  validation loss 2.2500  perplexity 9.49\n" in done.stdout
    assert (tmp_path / "log").read_text() == done.stdout


def test_a_terminal_gets_a_bar_and_the_log_plain_lines(tmp_path: Path) -> None:
    shown = on_a_terminal(tmp_path / "log")
    assert "━" in shown
    assert "110/400  loss 2.5000  12,346 tok/s  0:0" in shown
    assert "validation loss 2.2500" in shown
    log = (tmp_path / "log").read_text()
    assert STEP in log
    assert "\x1b" not in log


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(tmp_path: Path) -> None:
    assert STEP in on_a_terminal(tmp_path / "log", term="dumb")


def test_a_closed_pipe_does_not_end_the_run(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        command(tmp_path / "log"), stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "the end\n")
    assert STEP in (tmp_path / "log").read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_the_log_does_not_end_the_run() -> None:
    done = subprocess.run(command(Path("/dev/full")), capture_output=True, text=True, check=True)
    assert STEP in done.stdout
