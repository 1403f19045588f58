"""Policy of launching: what to do, not where."""

from dataclasses import dataclass
from enum import Enum


class OnFailure(Enum):
    """What a failed member means for the members after it."""

    go_on = "go_on"
    stop = "stop"


@dataclass
class Launcher:
    """How members of a sweep are started."""

    dry_run: bool = False
    """Whether the jobs are only printed (same as --dry-run)."""
    on_failure: OnFailure = OnFailure.go_on
    """go_on: the other members still run; stop: they don't."""
    stop_timeout_s: float = 60.0
    """How long a stopped run may take to save and end before it is killed [s]."""
