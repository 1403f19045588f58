"""The run directory knows who is at work in it."""

import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest

from ringshard.errors import ConfigError
from ringshard.launch.rundir import RunDir


@contextmanager
def at_work(run: RunDir) -> Iterator[None]:
    """Another process holds the run; it is killed at the end."""
    pipe, child = os.pipe(), os.fork()
    if not child:
        with run.claimed():
            os.write(pipe[1], b"held")
            signal.pause()
    try:
        assert os.read(pipe[0], 4) == b"held"
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_run_at_work_is_held_and_let_go_however_it_ends(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with at_work(run):
        assert run.is_running()
        with pytest.raises(ConfigError, match="is running"), run.claimed():
            pass
    assert not run.is_running()
    with run.claimed():
        pass


def test_asking_whether_a_run_is_at_work_keeps_others_from_it(tmp_path: Path) -> None:
    """An asker holds the lock for a moment: no other asker takes it for the run's, and no claim
    fails of it."""
    run = RunDir(tmp_path)
    with run.claimed():
        pass
    with (tmp_path / "lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # where an asker stands
        assert not run.is_running()
        Timer(0.1, lambda: fcntl.flock(file, fcntl.LOCK_UN)).start()
        with run.claimed():
            assert run.is_running()


def test_a_file_system_without_locks_is_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lock").touch()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ConfigError, match="mount it with flock"):
        RunDir(tmp_path).is_running()
