"""Runs side by side on a terminal: what differs between them, and where they got."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from ringshard.report.compared import Compared, last, mfu, step, tokens_per_s
from ringshard.report.goodput import clock, total
from ringshard.report.groups import (
    by_seed,
    differences,
    shown,
    spread,
    telling,
    told_apart,
    unique_names,
)

MOST_COLUMNS = 4
"""Differing keys that stand beside the runs. Of more, those that tell the runs apart; then all of
them are rows of a table of their own."""
MOST_ROWS = 24
MOST_RUNS = 6
"""Runs that have a column each in that table."""


_FOUR, _TWO = "{:.4g}".format, "{:.2g}".format
"""Significant digits, of a number and of a deviation."""


@dataclass(frozen=True)
class Column:
    """A number of every run."""

    title: str
    value: Callable[[Compared], float | None]
    form: Callable[[float], str] = _FOUR
    best: Callable[[Sequence[float]], float] | None = None
    """Which of several is the best."""


def columns(runs: Sequence[Compared], metric: str) -> list[Column]:
    """The numbers that a comparison is about; those that no run has are left out."""
    found = [
        Column("train\nloss", lambda run: last(run, "train/loss"), best=min),
        Column("val\nloss", lambda run: last(run, "val/loss"), best=min),
        Column("tok/s", tokens_per_s, "{:,.0f}".format, max),
        Column("mfu", mfu, "{:.1%}".format, max),
        Column("good-\nput", _goodput, "{:.0%}".format),
    ]
    if metric not in ("train/loss", "val/loss", "perf/tokens_per_s", "perf/mfu"):
        found.append(Column(metric, lambda run: last(run, metric)))
    return [column for column in found if any(column.value(run) is not None for run in runs)]


def _goodput(run: Compared) -> float | None:
    return run.goodput.fraction if run.goodput and run.goodput.wall_ms else None


def best(column: Column, runs: Sequence[Compared]) -> set[int]:
    """Places of the runs with the best number; none of runs that diverged, or that are alone."""
    values = [column.value(run) for run in runs]
    sound = [
        value
        for run, value in zip(runs, values, strict=True)
        if value is not None and math.isfinite(value) and "diverged" not in run.state
    ]
    if column.best is None or len(sound) < 2 or len(set(sound)) == 1:
        return set()
    found = column.best(sound)
    return {
        place
        for place, (run, value) in enumerate(zip(runs, values, strict=True))
        if value == found and "diverged" not in run.state
    }


def table(runs: Sequence[Compared], metric: str) -> Table:
    """One row a run: name, state, step, what differs, the headline metrics; * marks the best."""
    keys = differences(runs)
    keys = keys if len(keys) <= MOST_COLUMNS else telling(runs, keys)[:MOST_COLUMNS]
    numbers = columns(runs, metric)
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("run", "state"):
        drawn.add_column(title, overflow="fold")
    narrow = [key.replace(".", ".\n") for key in keys]
    for title in ("step", *narrow, *(column.title for column in numbers)):
        drawn.add_column(Text(title), justify="right", overflow="fold")
    marked = [best(column, runs) for column in numbers]
    for place, (run, name) in enumerate(zip(runs, unique_names(runs), strict=True)):
        told = (Text(shown(run.config.get(key))) for key in keys)
        cells = (
            _cell(column, run, place in places)
            for column, places in zip(numbers, marked, strict=True)
        )
        drawn.add_row(Text(name), Text(run.state), str(step(run)), *told, *cells)
    return drawn


def _cell(column: Column, run: Compared, is_best: bool) -> Text:
    value = column.value(run)
    text = "" if value is None else column.form(value)
    return Text(f"*{text}", style="bold green") if is_best else Text(text)


def table_of_seeds(runs: Sequence[Compared], metric: str) -> Table | None:
    """One row for runs that differ in their seed alone: mean ± deviation; None: there are none."""
    groups = by_seed(runs)
    if len(groups) == len(runs):
        return None
    first = [runs[group[0]] for group in groups]
    keys = telling(first, differences(first))[:MOST_COLUMNS]
    numbers = columns(runs, metric)
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    drawn.add_column("over seeds" if keys else "", overflow="fold")
    for title in ("runs", *(column.title for column in numbers)):
        drawn.add_column(Text(title), justify="right", overflow="fold")
    for group in groups:
        members = [runs[place] for place in group]
        name = told_apart(members[0], keys) or "all"
        drawn.add_row(Text(name), str(len(group)), *(over(c, members) for c in numbers))
    return drawn


def over(column: Column, members: Sequence[Compared]) -> str:
    """Mean ± deviation of a number; what is not finite is left out, which is said."""
    found = spread([column.value(run) for run in members])
    if found is None:
        return ""
    text = column.form(found.mean)
    if found.deviation is not None:
        form = _TWO if column.form is _FOUR else column.form
        text += f" ± {form(found.deviation)}"
    return text + (f" ({found.left_out} not finite)" if found.left_out else "")


def table_of_keys(runs: Sequence[Compared]) -> tuple[Table, list[str]] | None:
    """One row a key where `table` has no room for them, and the keys that are left out here too."""
    keys = differences(runs)
    if len(keys) <= MOST_COLUMNS:
        return None
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    drawn.add_column("key", overflow="fold")
    for title in unique_names(runs) if len(runs) <= MOST_RUNS else ["values"]:
        drawn.add_column(Text(title), overflow="ellipsis", no_wrap=True, max_width=60)
    for key in keys[:MOST_ROWS]:
        values = [shown(run.config.get(key)) for run in runs]
        cells = values if len(runs) <= MOST_RUNS else [", ".join(dict.fromkeys(values))]
        drawn.add_row(key, *map(Text, cells))
    return drawn, keys[MOST_ROWS:]


def spent_together(runs: Sequence[Compared]) -> str:
    """Where the wall time of all runs went, in a line; empty where nothing tells."""
    told = total([run.goodput for run in runs if run.goodput])
    if not told.wall_ms:
        return ""
    parts = sorted(((ms, part) for part, ms in told.parts.items()), reverse=True)
    shares = [f"{part} {ms / told.wall_ms:.1%}" for ms, part in parts if ms >= told.wall_ms / 1000]
    return f"{clock(told.wall_ms)} of wall time: {', '.join(shares)}"


MOST_NOTES = 20
"""Of a comparison."""


def notes(runs: Sequence[Compared], metric: str) -> list[str]:
    """What a reader must know to trust the numbers: a sentence each."""
    names = unique_names(runs)
    found = [
        f"{name}: {fault}" for name, run in zip(names, runs, strict=True) for fault in run.faults
    ]
    for name, run in zip(names, runs, strict=True):
        found += [f"{name}: {text}" for text in broken(run, metric)]
    if len({step(run) for run in runs}) > 1:
        found.append("the runs have not trained equally long: compare them along the curves")
    commits = dict.fromkeys(run.code for run in runs if run.code)
    if len(commits) > 1:
        told = ", ".join(f"{n} {run.code}" for n, run in zip(names, runs, strict=True))
        told = told if len(runs) <= MOST_RUNS else f"{len(commits)} commits, {', '.join(commits)}"
        found.append(f"the runs are of different code: {told}")
    return found[:MOST_NOTES] + (
        [f"{len(found) - MOST_NOTES} more like these"] if len(found) > MOST_NOTES else []
    )


def broken(run: Compared, metric: str) -> list[str]:
    """Which curves of a run hold values that are not finite."""
    told = []
    for key in dict.fromkeys((metric, "train/loss", "val/loss", "train/grad_norm")):
        curve = run.curves.get(key)
        if curve is not None and (count := curve.broken):
            first = curve.steps[~np.isfinite(curve.values)][0]
            told.append(
                f"{count} of {len(curve)} values of {key} are NaN or infinite, the first at step"
                f" {first}"
            )
    return told
