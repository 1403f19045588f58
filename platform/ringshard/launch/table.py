"""Runs as a table: where they stand, how far they came, what went wrong."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.table import Table

from ringshard.launch import unbegun
from ringshard.launch.failure import first_failure, has_failed
from ringshard.launch.progress import progress
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.state import Queue, State, end, job_id

_WIDEST = 100
"""Characters of a reason in a table; `ringshard runs show` tells all of it."""


def table(
    runs: Iterable[RunDir],
    stands: dict[Path, State],
    jobs: Queue,
    own: Mapping[Path, list[str]] | None = None,
) -> Table:
    """State, step, its loss and tokens a second, and what went wrong or is waited for, a line a
    run.

    own: what each was given that others were not.
    """
    shown = Table(box=None, pad_edge=False)
    member = ["member"] if own else []
    for title in ("run", *member, "state", "attempt", "step", "loss", "last tok/s", "why"):
        right = title in ("attempt", "step", "loss", "last tok/s")
        shown.add_column(title, justify="right" if right else "left", overflow="fold")
    for run in runs:
        far, here = progress(run.path), stands[run.path]
        loss = "" if far.loss is None else f"{far.loss:.4f}"
        rate = "" if far.tokens_per_s is None else f"{far.tokens_per_s:,.0f}"
        given = [" ".join(own[run.path])] if own else []
        numbers = (str(run.last_attempt()), str(far.step), loss, rate)
        why = reason(run, here, jobs)
        shown.add_row(run.path.name, *given, run.told(here.name), *numbers, why)
    return shown


def _short(run: RunDir, words: str) -> str:
    """As a cell has room for it: paths begin at the run, or beside it."""
    for folder in (run.path.absolute(), run.path.absolute().parent):
        words = words.replace(f"{folder}/", "")
    return words if len(words) <= _WIDEST else f"{words[: _WIDEST - 1]}…"


def reason(run: RunDir, stands: State, jobs: Queue) -> str:
    """What a run waits for in the queue, in Slurm's word, or what went wrong, in few words."""
    job = (jobs or {}).get(job_id(run) or "") if stands is State.pending else None
    return job.reason if job and job.reason != "None" else _short(run, error(run, stands))


def error(run: RunDir, stands: State) -> str:
    """One line on what went wrong with a run that ended; empty where nothing did."""
    if stands in (State.done, State.running, State.pending, State.new):
        return ""
    if stands is State.killed and run.outcome() is not Outcome.killed:
        return unbegun.CANCELLED
    told = end(run) or unbegun.of_data(run)
    if not told and stands is State.interrupted and (before := unbegun.predecessor(run)):
        return f"launcher.after={before.path} was not trained to its end: resume that one first"
    words = str(told.get("error") or told.get("why") or "")
    if not words and has_failed(run.attempt(run.last_attempt())):
        words = first_failure(run.attempt(run.last_attempt())).message
    return " ".join(words.split())
