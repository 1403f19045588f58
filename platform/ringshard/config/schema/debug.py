"""Running a job under a debugger."""

from dataclasses import dataclass
from enum import Enum


class DebugMode(Enum):
    """off: as configured; one: one process in the foreground, no torchrun; ranks: two ranks, one
    may wait for a debugger."""

    off = "off"
    one = "one"
    ranks = "ranks"


@dataclass
class Debug:
    """How the processes are started for a debugger."""

    mode: DebugMode = DebugMode.off
    """off, one or ranks."""
    rank: int | None = None
    """ranks only: the rank that waits for a debugger [0…]."""
    port: int = 5678
    """ranks only: loopback port on which that rank waits."""
    compare_rows: bool = False
    """Whether the processes that share sequences (parallelism.cp) compare what they read, each
    batch; with any mode."""
