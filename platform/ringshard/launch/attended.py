"""Sweeps that a command is at work on: more of their members may begin."""

import fcntl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ringshard import child
from ringshard.errors import ConfigError
from ringshard.launch.show import short, typed

_LOCK = "attended.lock"


class Attendance(ExitStack):
    """The sweeps that a command is at work on, until it ends."""

    def __init__(self) -> None:
        super().__init__()
        self._sweeps: set[Path] = set()

    def begin(self, sweep: Path) -> None:
        """From now on, if it is not one of them already."""
        if sweep not in self._sweeps:
            self._sweeps.add(sweep)
            self.enter_context(attended(sweep))


@contextmanager
def attended(sweep: Path) -> Iterator[None]:
    """This process is at work on a sweep, perhaps beside others, for as long as it lives; at the
    end MLflow is told where the sweep stands, if it knows of it."""
    sweep.mkdir(parents=True, exist_ok=True)
    try:
        with (sweep / _LOCK).open("a+b") as file:  # NFS locks for both what may be read and written
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
        child.ask("ringshard.tracking.sweep", str(sweep))
    except (child.ChildError, ConfigError, KeyboardInterrupt) as error:
        why = error.last_line if isinstance(error, child.ChildError) else error
        print(
            f"MLflow was not told where the sweep stands ({why or 'interrupted'}):"
            f" {typed('ringshard')} track reap {short(sweep)} does it",
            file=sys.stderr,
        )
