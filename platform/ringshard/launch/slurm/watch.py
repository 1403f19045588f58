"""Shows submitted runs until all have ended; whoever stops looking stops nothing."""

import subprocess
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from ringshard import child
from ringshard.launch import manifest, show
from ringshard.launch.identity import Run
from ringshard.launch.rundir import RunDir
from ringshard.launch.state import Queue, QueueWatch, State, state
from ringshard.launch.table import reason, table

_EVERY_S = 2.0


def watch(runs: list[Run]) -> int:
    """Waits for the end of all; 0 where all are done, 1 where one is not, 130 if it was left."""
    try:
        ended = _follow(runs)
    except KeyboardInterrupt:
        here = _folder(runs)
        ours = show.typed("ringshard")
        print(f"\nleft; they go on: {ours} runs list {here}, {ours} runs cancel {here}")
        return 130
    manifest.write(runs)
    synchronize(runs)
    show.results(runs)
    return 0 if all(stands is State.done for stands in ended.values()) else 1


def _follow(runs: list[Run]) -> dict[Path, State]:
    """A live table on a terminal; elsewhere a line whenever a run stands otherwise."""
    console, before, queue = Console(), dict[Path, State](), QueueWatch()
    own = show.own_overrides(runs) if runs[1:] else None
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            jobs = queue.jobs(run.dir for run in runs)
            now = {run.dir.path: state(run.dir, jobs) for run in runs}
            if console.is_terminal:
                live.update(table((run.dir for run in runs), now, jobs, own), refresh=True)
            else:
                _print_changes(before, now, jobs)
            if not any(stands.lives for stands in now.values()):
                return now
            before = now
            time.sleep(_EVERY_S)


def _print_changes(before: dict[Path, State], now: dict[Path, State], jobs: Queue) -> None:
    for path, stands in now.items():
        if before.get(path) is not stands:
            why = reason(RunDir(path), stands, jobs)
            print(f"{path.name}  {stands.name}  {why}".rstrip(), flush=True)


def synchronize(runs: list[Run]) -> None:
    """Brings points to an sqlite file, which the nodes never open."""
    tracked = [str(run.dir.path) for run in runs if _is_left_here(run)]
    for begin in range(0, len(tracked), 500):  # a command line has an end
        command = child.command("ringshard.cli", "track", "sync", *tracked[begin : begin + 500])
        subprocess.run(command, env=child.environment(), stdout=subprocess.DEVNULL)


def _is_left_here(run: Run) -> bool:
    # It may have been deleted meanwhile.
    return run.job.tracking.ships_to_file and run.dir.record.exists()


def _folder(runs: list[Run]) -> str:
    return show.short(runs[0].dir.path if len(runs) == 1 else runs[0].dir.path.parent)
