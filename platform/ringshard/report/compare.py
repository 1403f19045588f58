"""Runs side by side on a terminal: what differs between them, and where they got."""

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace

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
        Column("mean\ntok/s", tokens_per_s, "{:,.0f}".format, max),
        Column("mean\nmfu", mfu, "{:.1%}".format, max),
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


@dataclass(frozen=True)
class Rows:
    """A table as text."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: Set[tuple[int, int]] = frozenset()
    """Row and column of the cells that are the best of their column."""


def summary(runs: Sequence[Compared], metric: str, most: int) -> Rows:
    """One row a run: name, state, step, what differs (so many keys at most), headline metrics."""
    keys, numbers = differences(runs), columns(runs, metric)
    keys = keys if len(keys) <= most else telling(runs, keys)[:most]
    titles = ["run", "state", "step", *keys, *(column.title for column in numbers)]
    rows = [
        [name, run.state, f"{step(run):,}"]
        + [shown(run.config.get(key)) for key in keys]
        + [_text(column, run) for column in numbers]
        for run, name in zip(runs, unique_names(runs), strict=True)
    ]
    places = enumerate(numbers, len(titles) - len(numbers))
    marked = {(row, place) for place, column in places for row in best(column, runs)}
    return Rows(titles, rows, marked)


def _text(column: Column, run: Compared) -> str:
    value = column.value(run)
    return "" if value is None else column.form(value)


def over_seeds(runs: Sequence[Compared], metric: str, most: int) -> Rows | None:
    """One row for runs that differ in their seed alone: mean ± deviation; None: there are none."""
    groups, numbers = by_seed(runs), columns(runs, metric)
    if len(groups) == len(runs):
        return None
    first = [runs[group[0]] for group in groups]
    keys = telling(first, differences(first))[:most]
    rows = []
    for group in groups:
        members = [runs[place] for place in group]
        name = told_apart(members[0], keys) or "all"
        rows.append([name, str(len(group)), *(over(column, members) for column in numbers)])
    return Rows(["over seeds", "runs", *(column.title for column in numbers)], rows)


def by_key(runs: Sequence[Compared], most: int) -> Rows:
    """One row a differing key, with a column for each of so many runs at most."""
    few = len(runs) <= most
    rows = []
    for key in differences(runs):
        values = [shown(run.config.get(key)) for run in runs]
        rows.append([key, *(values if few else [", ".join(dict.fromkeys(values))])])
    return Rows(["key", *(unique_names(runs) if few else ["values"])], rows)


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


def table(runs: Sequence[Compared], metric: str) -> Table:
    """The summary; * marks the best."""
    told = summary(runs, metric, MOST_COLUMNS)
    return drawn(replace(told, titles=[title.replace(".", ".\n") for title in told.titles]), 2)


def drawn(told: Rows, words: int = 1) -> Table:
    """A table for a terminal, whose first columns are words, the others numbers."""
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, title in enumerate(told.titles):
        found.add_column(
            Text(title), justify="right" if place >= words else "left", overflow="fold"
        )
    for number, row in enumerate(told.rows):
        found.add_row(*(_cell(text, (number, n) in told.best) for n, text in enumerate(row)))
    return found


def _cell(text: str, is_best: bool) -> Text:
    return Text(f"*{text}", style="bold green") if is_best else Text(text)


def table_of_seeds(runs: Sequence[Compared], metric: str) -> Table | None:
    """Of runs that differ in their seed alone; None: there are none."""
    told = over_seeds(runs, metric, MOST_COLUMNS)
    return drawn(told) if told else None


def table_of_keys(runs: Sequence[Compared]) -> tuple[Table, list[str]] | None:
    """One row a key where `table` has no room for them, and the keys that are left out here too."""
    told = by_key(runs, MOST_RUNS)
    if len(told.rows) <= MOST_COLUMNS:
        return None
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    found.add_column("key", overflow="fold")
    for title in told.titles[1:]:
        found.add_column(Text(title), overflow="ellipsis", no_wrap=True, max_width=60)
    for row in told.rows[:MOST_ROWS]:
        found.add_row(*map(Text, row))
    return found, [row[0] for row in told.rows[MOST_ROWS:]]


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
