"""A folder of the cache is whole or not there."""

import os
import signal
import time
from pathlib import Path

import pytest

from ringshard.data.cache import built, tidied


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_it_is_built_once(tmp_path: Path) -> None:
    calls: list[Path] = []

    def fill(folder: Path) -> None:
        calls.append(folder)
        (folder / "x").write_text("content")

    for _ in range(2):
        assert (built(tmp_path / "a/b", fill) / "x").read_text() == "content"
    assert len(calls) == 1 and names(tmp_path / "a") == ["b"]


def test_nothing_is_left_of_a_build_that_fails(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "half").write_text("")
        raise ValueError

    with pytest.raises(ValueError), tidied(tmp_path / "cache"):
        built(tmp_path / "cache/kind/key", fill)
    assert names(tmp_path) == []


def test_tidying_spares_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "cache/kind/key").mkdir(parents=True)
    with pytest.raises(ValueError), tidied(tmp_path / "cache"):
        (tmp_path / "cache/kind/key/x").write_text("")
        raise ValueError
    assert (tmp_path / "cache/kind/key/x").exists()


def test_killed_build_is_no_folder_and_is_built_again(tmp_path: Path) -> None:
    def killed(folder: Path) -> None:
        (folder / "half").write_text("")
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        built(tmp_path / "key", killed)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert not (tmp_path / "key").exists()
    folder = built(tmp_path / "key", lambda draft: (draft / "whole").touch())
    assert names(folder) == ["whole"] and names(tmp_path) == ["key"]


def test_processes_at_the_same_time_build_once(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        with (tmp_path / "calls").open("a") as calls:
            calls.write("x")
        time.sleep(0.2)
        (folder / "x").write_text("")

    children = []
    for _ in range(6):
        if child := os.fork():
            children.append(child)
        else:
            built(tmp_path / "cache/key", fill)
            os._exit(0)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    assert (tmp_path / "calls").read_text() == "x" and names(tmp_path / "cache") == ["key"]


def test_waiting_process_builds_if_the_first_one_fails(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        with (tmp_path / "calls").open("a") as calls:
            calls.write("x")
        time.sleep(0.1)
        if (tmp_path / "calls").read_text() == "x":
            raise ValueError

    children = []
    for _ in range(4):
        if child := os.fork():
            children.append(child)
        else:
            try:
                built(tmp_path / "cache/key", fill)
            except ValueError:
                os._exit(1)
            os._exit(0)
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    assert codes == [0, 0, 0, 1] and (tmp_path / "calls").read_text() == "xx"
