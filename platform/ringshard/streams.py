"""Standard streams that may be closed, or whose reader may go: no reason for a command to fail."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast


class Unbreakable:
    """A text stream that falls silent for good at its first error, such as a closed pipe.

    No io class is its base: that would close stdout when this object is collected.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._silent = False
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes, or does nothing."""
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flushes, or does nothing."""
        self._attempt(self._stream.flush)

    def close(self) -> None:
        """Closes the stream."""
        self._attempt(self._stream.close)

    def _attempt(self, action: Callable[[], object]) -> None:
        if self._silent:
            return
        try:
            action()
        except OSError:
            self._silent = True
            with suppress(
                OSError
            ):  # what is still buffered must not fail at the interpreter's exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextmanager
def steady() -> Iterator[None]:
    """stdout and stderr that take everything, whatever lies behind them."""
    _open_closed()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, Unbreakable(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def _open_closed() -> None:
    """A file opened later would take the number of a closed stream, and children write to it."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number
            mode = "r" if descriptor == 0 else "w"
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
