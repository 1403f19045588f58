"""Asking a rank to stop: a signal sets a flag, and the ranks agree on the step at which they heed
it."""

import signal
from types import FrameType

SIGNALS = (signal.SIGUSR2, signal.SIGTERM)


class StopRequest:
    """Whether this process was asked to stop. Call it to know."""

    def __init__(self) -> None:
        self._requested = False
        for number in SIGNALS:
            signal.signal(number, self._note)
        # The agent starts its processes with these blocked, so that none is lost before this line.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._requested = True

    def __call__(self) -> bool:
        return self._requested
