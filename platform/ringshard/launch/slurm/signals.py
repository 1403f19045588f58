"""Stop signals of a job: each node writes down its own and reads those of all."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from ringshard.files import read_json, write_json

SIGNALS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)
CHECKPOINT = "SIGUSR2"
"""Save and queue again; all others: stop, never queue again."""
_SAME_MOMENT_S = 1.0


@dataclass
class Signals:
    """What came to this node; the handler does nothing but remember."""

    came: list[tuple[str, float]] = field(default_factory=list)
    """Name and time [s since 1970]."""

    def remember(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        self.note(signal.Signals(number).name)

    def note(self, name: str) -> None:
        """The same by name."""
        self.came.append((name, time.time()))

    def collect(self) -> None:
        """Takes the place of submitit's handlers; what was blocked stays so."""
        for number in SIGNALS:
            signal.signal(number, self.remember)
        signal.signal(signal.SIGCONT, signal.SIG_DFL)


@contextmanager
def blocked() -> Iterator[None]:
    """Signals that come within wait for the end; processes started there never get them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    yield
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def look_every_s(nodes: int) -> float:
    """How often each node may look for what the others have written: a thousand of them must not
    ask the file system twenty thousand times a second [s]."""
    return max(0.5, nodes / 200)


class Noted:
    """The signals of all nodes of an attempt: one signalled node stops the job everywhere."""

    def __init__(self, folder: Path, node: int, nodes: int, own: Signals) -> None:
        self._folder, self._node, self._own = folder, node, own
        self._written, self._others = 0, dict[int, list[tuple[str, float]]]()
        self._every_s, self._next = look_every_s(nodes), 0.0
        self._alone = nodes == 1

    def first(self) -> tuple[str, float] | None:
        """CHECKPOINT or SIGTERM, as judged over all nodes, and when it first came; None: neither.

        At a time limit both may come within milliseconds, in any order: that is no cancellation.
        """
        self._exchange()
        every = [*self._own.came, *(entry for came in self._others.values() for entry in came)]
        if not every:
            return None
        saves = [time for name, time in every if name == CHECKPOINT]
        stops = [time for name, time in every if name != CHECKPOINT]
        if saves and (not stops or min(stops) - min(saves) < _SAME_MOMENT_S):
            return CHECKPOINT, min(saves)
        return "SIGTERM", min(stops)

    def _exchange(self) -> None:
        if len(self._own.came) > self._written:
            self._written = len(self._own.came)
            write_json(self._folder / f"signals-{self._node}.json", {"came": self._own.came})
        if self._alone or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every_s
        for file in self._folder.glob("signals-*.json"):
            node = int(file.stem.removeprefix("signals-"))
            if node != self._node:
                came = (read_json(file) or {}).get("came", [])
                self._others[node] = [(name, when) for name, when in came]
