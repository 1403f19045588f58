"""What a user sees on a real terminal: the table of runs that are waited for, a log that grows."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from types import TracebackType

from report.folders import made

import ringshard
from ringshard.config.schema.tracking import Backend
from ringshard.launch.rundir import Outcome, RunDir

WATCH = """
import sys
from pathlib import Path
from ringshard.launch.identity import Run
from ringshard.launch.rundir import RunDir
from ringshard.launch.slurm.watch import watch
dirs = [RunDir(Path(path)) for path in sys.argv[1:]]
runs = [Run(run.job(1), [f"train.seed={n}"], "x", None, run) for n, run in enumerate(dirs)]
sys.exit(watch(runs))
"""


class Terminal:
    """A command on a terminal of 150 columns."""

    def __init__(self, *command: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 150, 0, 0))
        source = str(Path(ringshard.__file__).parents[1])
        environment = {**os.environ, "PYTHONPATH": source, "TERM": "xterm", "COLUMNS": "150"}
        self.process = subprocess.Popen(
            [sys.executable, *command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        self.text = ""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def shows(self, word: str) -> str:
        """Reads on until a word is there; what came since the last one."""
        before = len(self.text)
        while word not in self.text[before:]:
            piece = self._read()
            assert piece, f"no {word} in:\n{self.text}"
            self.text += piece
        return self.text[before:]

    def ends(self) -> int:
        """Reads to the end; the exit code."""
        while piece := self._read():
            self.text += piece
        return self.process.wait()

    def _read(self) -> str:
        try:
            return os.read(self._ours, 4096).decode(errors="replace")
        except OSError:  # the other side closed
            return ""


def untracked(folder: Path, name: str) -> Path:
    """A run that nobody has ended, and that leaves nothing to be synced."""
    return made(folder, name, marker=None, tracking__backend=Backend.jsonl)


def test_the_table_of_runs_that_are_waited_for_is_not_drawn_or_not_drawn_again(
    tmp_path: Path,
) -> None:
    first, second = (untracked(tmp_path, f"run-{name}") for name in "ab")
    with (
        RunDir(first).claimed(),
        RunDir(second).claimed(),
        Terminal("-c", WATCH, str(first), str(second)) as terminal,
    ):
        drawn = terminal.shows("train.seed=1")
        title = next(line for line in drawn.splitlines() if "last tok/s" in line)
        words = re.sub(r"\x1b\[[?\d;]*[a-z]", "", title).split()
        assert words[:4] == ["run", "member", "state", "attempt"]
        assert drawn.count("running") == 2 and "\x1b" in terminal.text
        RunDir(first).finish(1, Outcome.done, {})
        again = terminal.shows("done")
        assert "\x1b[1A" in again, "it is not drawn over the one before"
        error = {"error": "the lamp went out"}
        RunDir(second).finish(1, Outcome.failed, error)
        terminal.shows("the lamp went out")
        assert terminal.ends() == 1


def test_a_log_that_is_followed_ends_at_a_requeue_or_never(tmp_path: Path) -> None:
    run = RunDir(untracked(tmp_path, "run"))
    log = run.attempt(1) / "rank-0.log"
    logs = ("-m", "ringshard.cli", "runs", "logs", "-f", str(run.path))
    with run.claimed(), Terminal(*logs) as terminal:
        terminal.shows("rank 0 has printed nothing yet")
        log.write_text("one\n")
        terminal.shows("one")
        with log.open("a") as more:
            more.write("two\n")
        terminal.shows("two")
        run.finish(1, Outcome.requeued, {"why": "preempted"})
        run.attempt(2).mkdir()
        (run.attempt(2) / "rank-0.log").write_text("three\n")
        run.clear_markers()
        terminal.shows("three")
        (run.attempt(2) / "rank-0.log").write_text("three\nfour\n")
        run.finish(2, Outcome.done, {})
        assert terminal.ends() == 0
    shown = terminal.text.replace("rank 0 has printed nothing yet", "").split()
    assert shown == ["one", "two", "three", "four"]


def test_ctrl_c_at_a_followed_log_is_a_traceback(tmp_path: Path) -> None:
    run = RunDir(untracked(tmp_path, "run"))
    (run.attempt(1) / "rank-0.log").write_text("one\n")
    with (
        run.claimed(),
        Terminal("-m", "ringshard.cli", "runs", "logs", "-f", str(run.path)) as terminal,
    ):
        terminal.shows("one")
        terminal.process.send_signal(2)
        assert terminal.ends() == 130 and "Traceback" not in terminal.text
