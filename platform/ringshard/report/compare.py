"""Several runs side by side: what differs between them and where they got."""

from rich import box
from rich.table import Table

from ringshard.config.leaves import under
from ringshard.report.runs import Run

_INCIDENTAL = ("output", "tracking", "launcher", "debug", "sweep", "user.path", "data.cache")
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


def table(runs: list[Run], metric: str) -> Table:
    """One row a run: name, state, step, what differs, the last value of the headline metrics."""
    keys = differences(runs)
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


def _number(metric: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if metric == "perf/tokens_per_s" else f"{value:.4g}"


def labels(runs: list[Run]) -> list[str]:
    """Short names for a legend: what differs, where that tells the runs apart."""
    keys = differences(runs)
    told = [
        ", ".join(f"{key.split('.')[-1]}={run.config.get(key)}" for key in keys) for run in runs
    ]
    return told if len(set(told)) == len(runs) > 1 else [run.name for run in runs]
