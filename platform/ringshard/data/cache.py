"""Folders that are built once: whole or not there, whoever else builds them and whenever we die."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ringshard.files import sync


def built(folder: Path, fill: Callable[[Path], None]) -> Path:
    """The folder, filled by `fill` if it is not there; others wait for the process that builds.

    It is filled under another name and renamed: a folder that exists is complete.
    """
    if folder.is_dir():
        return folder
    with _locked(folder.with_name(f".{folder.name}.lock")):
        if not folder.is_dir():
            _build(folder, fill)
    return folder


class MissingError(Exception):
    """A folder is not built yet."""


def present(folder: Path, fill: Callable[[Path], None]) -> Path:
    """The folder as `built` has left it; raises MissingError where it has not."""
    if not folder.is_dir():
        raise MissingError(folder)
    return folder


def _build(folder: Path, fill: Callable[[Path], None]) -> None:
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)  # of a build that was killed
    draft.mkdir()
    try:
        fill(draft)
        for path in (*draft.rglob("*"), draft):
            sync(path)
        draft.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock file that is gone afterwards (filelock leaves its files behind)."""
    descriptor = _acquire(path)
    while not _is_file_of(path, descriptor):  # it was removed by the holder we waited for
        os.close(descriptor)
        descriptor = _acquire(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(path: Path) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # the folder was tidied away in between
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return descriptor


def _is_file_of(path: Path, descriptor: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False


@contextmanager
def tidied(folder: Path) -> Iterator[None]:
    """If the work within fails, remove the empty folders that it has made at and above `folder`."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        for path in [*folder.glob("*/"), *made]:
            with suppress(OSError):  # not empty, or not there
                path.rmdir()
        raise
