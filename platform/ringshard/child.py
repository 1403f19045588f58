"""A module run in a process of its own: what it imports and how it dies stays there."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ringshard.errors import ConfigError

# A RANK or MASTER_PORT exported in the shell, or the allocation an interactive job stands in, would
# make the ranks look for a world that is not theirs; a stale MLFLOW_RUN_ID would overwrite a run.
_RANKS = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME")
_WORLD = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR")
_RUN = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_TRACKING_URI")
_HYDRA = ("HYDRA_FULL_ERROR", "HYDRA_MAIN_MODULE")
_STALE = frozenset((*_RANKS, *_WORLD, "MASTER_PORT", *_RUN, *_HYDRA))
_STALE_PREFIXES = (
    *("SLURM", "SBATCH_", "SRUN_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_"),
    *("SUBMITIT_", "PMI_", "PMIX_"),
    *("TORCHELASTIC_", "PET_"),
)
_ALWAYS = {
    "PYTHONSAFEPATH": "1",  # a random.py in the user's folder must not shadow Python's own
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
}


class ChildError(Exception):
    """A child failed, through no mistake of the user's that it knows of.

    `str()` is what it said on stderr, empty where the user has seen it already.
    """

    def __init__(self, code: int, said: str) -> None:
        super().__init__(said)
        self.code = code
        """Its exit code, as a shell would tell it."""

    @property
    def last_line(self) -> str:
        """What it said last: of a traceback, the exception."""
        return (str(self).splitlines() or [f"exit code {self.code}"])[-1]


def environment(shell: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A shell's environment without what other launchers left there."""
    kept = {
        name: value
        for name, value in shell.items()
        if name not in _STALE and not name.startswith(_STALE_PREFIXES)
    }
    return kept | _ALWAYS


def command(module: str, *arguments: str) -> list[str]:
    """`python -m module …` with the Python that runs here."""
    return [sys.executable, "-m", module, *arguments]


def die_with(parent: int) -> None:
    """To be called in a child before exec: it is killed when its parent is, even by kill -9."""
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # killed before the line above
        os._exit(1)


def answer(action: Callable[[], object]) -> int:
    """What a module exits with that `ask` runs: 2 where it raises ConfigError, whose sentence it
    prints."""
    try:
        action()
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def ask(module: str, *arguments: str, about: Any = None, aloud: bool = False) -> Any:
    """Runs a module with `about` as JSON on its stdin; the JSON on its last line is the answer.

    aloud: its stderr is the user's, with progress and the sentence of a mistake.
    Raises ConfigError with its last line where it exits with 2, ChildError where it fails.
    """
    done = subprocess.run(
        command(module, *arguments),
        input=json.dumps(about),
        stdout=subprocess.PIPE,
        stderr=None if aloud else subprocess.PIPE,
        env=environment(),
        preexec_fn=partial(die_with, os.getpid()),
        text=True,
        errors="replace",
    )
    if done.returncode:
        code = done.returncode if done.returncode > 0 else 128 - done.returncode
        error = ChildError(code, (done.stderr or "").strip())
        raise ConfigError(error.last_line) if code == 2 and not aloud else error
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else None
