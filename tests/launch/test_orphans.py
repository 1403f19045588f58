"""What a command has started does not outlive it."""

import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from launch.commandline import alive, begin

SLOW = """
import os, time
from pathlib import Path
from ringshard.registry import register
@register("corpus", "slow")
def slow():
    Path("reading").write_text(str(os.getpid()))
    time.sleep(600)
    yield "never"
"""
OWN = ("user.modules=[slow]", "+data.corpora.own={kind: custom, name: slow}")


def _told(path: Path) -> int:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.05)
    raise AssertionError(f"{path} did not appear")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_preparation_outlives_its_command(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    command = begin(tmp_path, *OWN)
    child = _told(tmp_path / "reading")
    command.send_signal(number)
    command.wait(timeout=30)
    until = time.monotonic() + 5
    while alive(child) and time.monotonic() < until:
        time.sleep(0.05)
    survived = alive(child)
    with suppress(psutil.NoSuchProcess):
        psutil.Process(child).kill()
    assert not survived
