"""Sweeps that a command is at work on: more of their members may begin."""

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringshard import child
from ringshard.errors import ConfigError
from ringshard.launch.show import typed

_LOCK = "attended.lock"


@contextmanager
def attended(sweep: Path) -> Iterator[None]:
    """This process is at work on a sweep, perhaps beside others, for as long as it lives; at the
    end MLflow is told where the sweep stands, if it knows of it."""
    sweep.mkdir(parents=True, exist_ok=True)
    try:
        with (sweep / _LOCK).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            yield
    finally:
        _tell(sweep)


def is_attended(sweep: Path) -> bool:
    """Whether a live process is at work on it; to be asked by one at a time."""
    try:
        with (sweep / _LOCK).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _tell(sweep: Path) -> None:
    if not (sweep / "mlflow.json").exists():
        return
    try:
        child.ask("ringshard.tracking.sweep_end", str(sweep))
    except (child.ChildError, ConfigError) as error:
        why = error.last_line if isinstance(error, child.ChildError) else error
        print(
            f"MLflow does not know where the sweep stands ({why}): {typed('ringshard')} track reap"
            " tells it",
            file=sys.stderr,
        )
