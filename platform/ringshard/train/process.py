"""A rank as a process of its own: its log, its error file, its exit code."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ringshard.train.attempt import Attempt


def run_rank(main: Callable[[Path, int], None]) -> NoReturn:
    """Calls `main(run_dir, attempt)` with what the command line names, and ends the process."""
    _die_with_torchrun()
    run_dir, number = Path(sys.argv[1]), int(sys.argv[2])
    attempt = Attempt.of_rank(run_dir, number)
    attempt.redirect()
    code = 0
    try:
        main(run_dir, number)
    except BaseException as error:  # an interrupt or a failed exit is an error of this rank as well
        attempt.record_error(error)
        code = 1
    sys.stdout.flush()
    # Tearing the interpreter down takes seconds after torch; nothing is left to do.
    os._exit(code)


def _die_with_torchrun() -> None:
    """The kernel kills this rank when its torchrun dies, also if it did before it was asked to:
    then the parent is no longer the child of the agent."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    agent = os.environ.get("RINGSHARD_AGENT")
    if agent is not None and _parent_of(os.getppid()) != int(agent):
        os._exit(1)


def _parent_of(pid: int) -> int | None:
    """proc(5): the second field behind the name of the program; None where the process is gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(status.rpartition(")")[2].split()[1])
