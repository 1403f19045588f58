"""No process of a run outlives it."""

import ctypes
from collections.abc import Iterable
from contextlib import suppress

import psutil

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Makes grandchildren whose parent dies ours, so that they can be found (prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants(spared: Iterable[int]) -> None:
    """SIGKILL to all descendants of this process but the spared ones and theirs; waits for them."""
    kept = set(spared)
    doomed: list[psutil.Process] = []
    for child in psutil.Process().children():
        if child.pid not in kept:
            with suppress(psutil.NoSuchProcess):
                doomed += [child, *child.children(recursive=True)]
    for process in doomed:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(doomed, timeout=10)
