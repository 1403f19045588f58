"""Files and folders are whole or absent."""

import os
import signal
from pathlib import Path

import pytest

from ringshard.files import read_json, whole_folder, write_json, write_whole


def test_a_file_that_can_not_be_written_leaves_the_old_one_alone(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"text": "é\udc80"})
    assert read_json(tmp_path / "a.json") == {"text": "é\udc80"}
    with pytest.raises(TypeError):
        write_whole(tmp_path / "a.json", 3)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_writer_that_fails_between_two_files_leaves_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "1") as folder:
        write_whole(folder / "first", str(1 / 0))
    assert list(tmp_path.iterdir()) == []


def test_a_writer_killed_between_two_files_leaves_no_folder(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        with whole_folder(tmp_path / "1") as folder:
            write_whole(folder / "first", "1")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert not (tmp_path / "1").exists()
    with whole_folder(tmp_path / "1") as folder:
        write_whole(folder / "second", "2")
    assert [path.name for path in (tmp_path / "1").iterdir()] == ["second"]
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
