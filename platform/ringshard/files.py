"""Files and folders that are whole or absent, whenever the machine stops. Standard library alone.

What is written lies beside its place until its bytes are on the disk, and is then renamed.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from ringshard.errors import ConfigError


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that appears at `path`, or replaces what is there, at the end; of several writers at
    once, one wins whole."""
    beside = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        with beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_whole(path: Path, text: str) -> None:
    """Writes or replaces a file of text."""
    with whole_file(path) as file:
        file.write(str.encode(text, "utf-8", "backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    """The same for a value as JSON."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A new folder to be filled, which appears at `path` at the end; one writer at a time."""
    beside = path.with_name(f".{path.name}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        yield beside
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    sync(beside)
    beside.rename(path)
    sync(path.parent)


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object; None where there is no such file. Raises ConfigError where it is damaged."""
    if not path.is_file():
        return None
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path} is damaged ({error}): restore it, or remove it") from error
    return value


def is_listed(path: Path) -> bool:
    """Whether a file that another machine writes is there: NFS believes for up to a minute that
    what was absent still is, but not where the folder is read."""
    try:
        return path in path.parent.iterdir()
    except (FileNotFoundError, NotADirectoryError):
        return False


def sync(path: Path) -> None:
    """Brings a file or a folder to the disk; a rename is there once its folder is."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
