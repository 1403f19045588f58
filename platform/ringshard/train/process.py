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
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a rank ends with its torchrun
    run_dir, number = Path(sys.argv[1]), int(sys.argv[2])
    attempt = Attempt(run_dir, number, int(os.environ.get("RANK", 0)))
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
