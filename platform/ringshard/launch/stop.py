"""Stop requests: what Ctrl-C, `kill` and a closed terminal ask of an agent."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class StopRequests:
    """The signals that came, in order; the handler does nothing but remember them."""

    came: list[tuple[signal.Signals, float]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.came)

    @property
    def first(self) -> signal.Signals:
        """The signal that decides how the run ends."""
        return self.came[0][0]

    def urgent(self, patience_s: float) -> bool:
        """Whether it was asked twice, or the time to stop cleanly is over.

        A terminal that closes may send SIGHUP more than once, and means nothing by it.
        """
        asked = [number for number, _ in self.came if number is not signal.SIGHUP]
        return len(asked) > 1 or bool(self and time.monotonic() - self.came[0][1] > patience_s)

    def remember(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        self.came.append((signal.Signals(number), time.monotonic()))


@contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Collects stop signals instead of dying of them; one that was held back arrives now."""
    requests = StopRequests()
    before = {number: signal.signal(number, requests.remember) for number in SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def blocked(*extra: signal.Signals) -> Iterator[None]:
    """Holds signals back: a process started here inherits the mask, so that none kills it early.

    A signal that comes meanwhile arrives at the end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [*SIGNALS, *extra])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
