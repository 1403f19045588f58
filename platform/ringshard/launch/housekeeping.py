"""What is done to a run that exists: read its logs, cancel it, measure it, remove it."""

import os
import shutil
import signal
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from ringshard.checkpoint.best import BEST
from ringshard.checkpoint.directory import pins
from ringshard.errors import ConfigError, of_path
from ringshard.files import read_json
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.slurm import queue
from ringshard.launch.slurm.queue import SlurmError
from ringshard.launch.state import QueueWatch, State, job_id, job_of, state

CANCELLED = "cancelled"
_PINNED = "PINNED"
_GONE = ".deleted-"


def attempts(run: RunDir, stands: State) -> Iterator[tuple[str, ...]]:
    """Number, begin, job, hosts, outcome, reason and saved step of every attempt."""
    last = run.last_attempt()
    for number in range(1, last + 1):
        folder = run.attempt(number)
        words = ("started", "submitted", "exit")
        began, submitted, end = (read_json(folder / f"{word}.json") or {} for word in words)
        if not folder.exists():
            continue
        lives = number == last and stands.lives
        clock = _clock(began["time"]) if began else "not yet" if lives else "never"
        # Of a task of an array, `started` knows a number that no command of Slurm prints.
        job = (job_of(submitted) if submitted else None) or began.get("job", "")
        hosts = ",".join(began.get("hosts", [began.get("host", "")]))
        outcome, why = end.get("outcome", ""), end.get("error") or end.get("why") or ""
        step = str(end.get("step", ""))
        yield str(number), clock, str(job), hosts, outcome, " ".join(str(why).split()), step


def _clock(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


def accounted(run: RunDir) -> str | None:
    """What sacct says of the run's job; None where there is no job or no accounting."""
    job = job_id(run)
    return queue.ended([job]).get(job) if job else None


def log(run: RunDir, rank: int, attempt: int | None, follow: bool) -> Iterator[str]:
    """The text of a rank's log; with `follow` also what is added, over requeues, until the end: a
    piece, perhaps an empty one, each second."""
    number = attempt or max(1, run.last_attempt())
    if not follow and not _file(run, number, rank).exists():
        raise ConfigError(f"{_file(run, number, rank)} is not there: the rank has not begun")
    place, watched = 0, QueueWatch()
    while True:
        stands = state(run, watched.jobs([run])) if follow else State.done
        file = _file(run, number, rank)
        text, place = _text_from(file, place) if file.exists() else ("", place)
        yield text
        if attempt is None and run.last_attempt() > number:
            number, place = run.last_attempt(), 0
        elif not stands.lives:
            return
        else:
            time.sleep(1)


def _text_from(file: Path, place: int) -> tuple[str, int]:
    """And where it ends."""
    with file.open(errors="replace") as opened:
        opened.seek(place)
        return opened.read(), opened.tell()


def _file(run: RunDir, attempt: int, rank: int) -> Path:
    return run.attempt(attempt) / f"rank-{rank}.log"


class NotCancelledError(ConfigError):
    """A run could not be asked to stop."""


def cancel(run: RunDir, stands: State, why: str = CANCELLED) -> str:
    """Asks a run to stop; what was done, in words. why: what its exit.json is to say.

    Raises NotCancelledError where the run goes on, without a trace of it.
    """
    (told,) = cancel_all([(run, stands)], why)
    if isinstance(told, NotCancelledError):
        raise told
    return told


def cancel_all(
    stand: list[tuple[RunDir, State]],
    why: str = CANCELLED,
    with_sweep: Collection[RunDir] = (),
) -> list[str | NotCancelledError]:
    """The same for many, and what became of each: Slurm hears of all of its own at once, or those
    that wait would begin in the place of the others.

    with_sweep: those at whose end a command that runs them one after another is to end too: it
    takes a signal without a note for its own.
    """
    before: dict[RunDir, str | None] = {}
    refused: dict[RunDir, NotCancelledError] = {}
    for run, stands in stand:
        if stands.lives and (job_id(run) or run not in with_sweep):
            try:
                before[run] = run.why_stopped(run.last_attempt())
                run.ask_to_stop(why)
            except OSError as error:
                refused[run] = NotCancelledError(f"not cancelled: {of_path(error)}")
    try:
        queue.cancel(filter(None, map(job_id, before.keys() - refused.keys())))
        is_done = True
    except SlurmError:
        is_done = False
    told: list[str | NotCancelledError] = []
    for run, stands in stand:
        try:
            told.append(refused.get(run) or _cancelled(run, stands, why, is_done))
        except NotCancelledError as error:
            run.ask_to_stop(before.get(run))
            told.append(error)
    return told


def _cancelled(run: RunDir, stands: State, why: str, is_done: bool) -> str:
    if not stands.lives:
        return f"{stands.name}: nothing to cancel"
    job = job_id(run)
    if job is None:
        return _interrupt(run)
    if not is_done:  # one that Slurm refuses holds up no other
        try:
            queue.cancel([job])
        except SlurmError as error:
            raise NotCancelledError(f"not cancelled: {error}") from error
    number = run.last_attempt()
    if stands is State.pending:  # nobody else will tell
        ended = {"why": why, "time": time.time(), "step": run.newest_step()}
        run.finish(number, Outcome.killed, ended)
    return f"job {job} is cancelled"


def _interrupt(run: RunDir) -> str:
    began = read_json(run.attempt(run.last_attempt()) / "started.json") or {}
    if began.get("host") != socket.gethostname():
        raise NotCancelledError(f"runs on {began.get('host')}: stop it there")
    with suppress(ProcessLookupError):
        os.kill(began["pid"], signal.SIGTERM)
    return "asked to stop"


def size(path: Path) -> int:
    """What a file or folder takes on the disk [bytes]."""
    files = (file for file in path.rglob("*") if file.is_file() and not file.is_symlink())
    return sum(file.stat().st_size for file in files)


def readable(number: float) -> str:
    """Bytes as people say them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def is_pinned(run: RunDir) -> bool:
    """Whether the run must not be deleted."""
    return (run.path / _PINNED).exists()


def pin(run: RunDir, keep: bool) -> None:
    """Keeps a run from being deleted, or no longer."""
    if keep:
        (run.path / _PINNED).touch()
    else:
        (run.path / _PINNED).unlink(missing_ok=True)


def why_kept(run: RunDir, stands: State) -> str:
    """Why a run may not be deleted; empty where it may."""
    if is_pinned(run):
        return "it is pinned"
    for reason, checkpoint in sorted(pins(run.path / "checkpoints").items()):
        if reason != BEST:  # nearly every run has that one, and nobody asked for it
            return f"{checkpoint} is pinned for {reason}"
    return f"it is {stands.name}" if stands.lives else ""


def delete(run: RunDir) -> None:
    """Removes a run; nobody may begin it meanwhile."""
    with run.claimed():
        gone = run.path.with_name(_GONE + run.path.name)
        run.path.rename(gone)
    shutil.rmtree(gone)
