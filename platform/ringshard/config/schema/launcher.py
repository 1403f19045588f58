"""Policy of launching: what to do, not where."""

from dataclasses import dataclass
from enum import Enum


class OnFailure(Enum):
    """What a failed member means for the members after it."""

    go_on = "go_on"
    stop = "stop"


class Retry(Enum):
    """Which members that ended without being done are started again by the same command."""

    all = "all"
    failed = "failed"
    timeout = "timeout"
    none = "none"


class Snapshot(Enum):
    """Which files of the code are frozen; none: the code is run as it lies there then."""

    copy = "copy"
    git = "git"
    none = "none"


@dataclass
class Launcher:
    """How runs and the members of a sweep are started."""

    dry_run: bool = False
    """Whether the jobs are only printed (same as --dry-run)."""
    on_failure: OnFailure = OnFailure.go_on
    """local, or in a search; go_on: the other members still run; stop: those that have not begun
    don't."""
    retry: Retry = Retry.all
    """What the same command starts again of a sweep's members that are not done: all of them, those
    that failed, those that ran out of time, or none."""
    max_parallel: int | None = None
    """Members of a sweep that run at once; null: one (local, or in a search), or as many as Slurm
    starts."""
    wait: bool = False
    """slurm only: whether the command shows the runs until they end (Ctrl-C leaves them running);
    else it ends once they are submitted. A search always waits."""
    metric: str | None = None
    """Metric whose last value is the result of a run, as in val/loss: printed at the end by a
    command that waits, the best first, and given to a sweeper of Hydra's; null: val/loss in a
    search."""
    minimize: bool = True
    """Whether the smaller result is the better one."""
    snapshot: Snapshot = Snapshot.copy
    """slurm only: what is frozen of Ringshard's code and the user's modules; copy: all files that
    git does not ignore; git: only those that it tracks; none: nothing."""
    after: str | None = None
    """slurm only: folder of a run that has to be done before this one starts."""
    max_restarts: int = 1
    """slurm only: how often the ranks are started again in place, after one of them died."""
    max_crashes: int = 3
    """slurm only: how often a job that crashed, or lost a node, is queued again; it is not after a
    crash with nothing new saved, nor after two nodes in a row were lost so."""
    max_timeouts: int = 100
    """slurm only: how often a run that reached its time limit is queued again; it is not with
    nothing new saved."""
    lead_s: int | None = None
    """slurm only: how long before its time limit a run stops and saves, half of the time at most;
    null: three times the longest checkpoint of the run so far and a minute, looked up when an
    attempt begins, 120 where none was saved yet [s]."""
    stop_timeout_s: float = 60.0
    """local only: how long a stopped run may take to save and end before it is killed [s]."""
