"""Several runs side by side: what differs between them and where they got."""

from rich import box
from rich.table import Table

from ringshard.config.leaves import under
from ringshard.report.runs import Run

_INCIDENTAL = (
    "output",
    "tracking",
    "launcher",
    "debug",
    "sweep",
    "search",
    "user.path",
    "data.cache",
)
_INCIDENTAL_DATA = ("data.prepared", "data.digest")
"""Where a run lies and how it is watched; nothing that shows in a curve."""
HEADLINES = {"train/loss": "train\nloss", "val/loss": "val\nloss", "perf/tokens_per_s": "tok/s"}


def differences(runs: list[Run]) -> list[str]:
    """The configuration keys in which the runs differ, in the order of the job file."""
    keys = dict.fromkeys(key for run in runs for key in run.config)
    return [
        key
        for key in keys
        if not under(key, _INCIDENTAL + _INCIDENTAL_DATA)
        and len({repr(run.config.get(key)) for run in runs}) > 1
    ]


MOST_COLUMNS = 4
"""Differing keys that stand beside the runs; more of them are rows of a table of their own."""
MOST_ROWS = 24
MOST_RUNS = 6
"""Runs that have a column each in that table."""


def table(runs: list[Run], metric: str) -> Table:
    """One row a run: name, state, step, what differs, the last value of the headline metrics."""
    keys = differences(runs)
    keys = keys if len(keys) <= MOST_COLUMNS else []
    metrics = HEADLINES | ({} if metric in HEADLINES else {metric: metric})
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("run", "state"):
        shown.add_column(title, overflow="fold")
    narrow = [key.replace(".", ".\n") for key in keys]
    for title in ("step", *narrow, *metrics.values()):
        shown.add_column(title, justify="right", overflow="fold")
    for run in runs:
        config = (str(run.config.get(key, "")) for key in keys)
        numbers = (_number(key, run.last(key)) for key in metrics)
        shown.add_row(run.name, run.state, str(run.step), *config, *numbers)
    return shown


def table_of_keys(runs: list[Run]) -> tuple[Table, list[str]] | None:
    """One row a key where `table` has no room for them, and the keys that are left out here too."""
    keys = differences(runs)
    if len(keys) <= MOST_COLUMNS:
        return None
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("key", overflow="fold")
    for title in [run.name for run in runs] if len(runs) <= MOST_RUNS else ["values"]:
        shown.add_column(title, overflow="ellipsis", no_wrap=True, max_width=60)
    for key in keys[:MOST_ROWS]:
        values = [str(run.config.get(key, "")) for run in runs]
        cells = values if len(runs) <= MOST_RUNS else [", ".join(dict.fromkeys(values))]
        shown.add_row(key, *cells)
    return shown, keys[MOST_ROWS:]


def _number(metric: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if metric == "perf/tokens_per_s" else f"{value:.4g}"


LONGEST_LABEL = 48
"""Of a legend [characters]."""


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def labels(runs: list[Run]) -> list[str]:
    """Short names for a legend: what differs, where that tells the runs apart."""
    keys = differences(runs)
    told = [
        ", ".join(f"{key.split('.')[-1]}={_short(run.config.get(key))}" for key in keys)
        for run in runs
    ]
    readable = all(len(text) <= LONGEST_LABEL for text in told)
    return told if readable and len(set(told)) == len(runs) > 1 else [run.name for run in runs]
