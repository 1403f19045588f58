"""`ringshard compare …`: runs side by side, as text, page, picture, JSON or CSV."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ringshard.errors import ConfigError
from ringshard.files import write_whole
from ringshard.report import compare as tables
from ringshard.report.compared import AXES, Compared, is_timed
from ringshard.report.groups import unique_names
from ringshard.report.runs import find
from ringshard.report.scaling import Series, scaling, table_rows, tells_processes

Axis = Enum("Axis", {name: name for name in AXES})  # type: ignore[misc]
Named = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN…",
        help="Run folders, a sweep's folder, an output root; with --uri experiments, sweeps, runs.",
    ),
]


def compare(
    named: Named,
    metric: Annotated[
        str | None, typer.Option(help="Curve of page and picture: by default train/loss.")
    ] = None,
    x: Annotated[
        Axis | None,
        typer.Option(help="What it is drawn over: by default steps, what nodes note over time."),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="File for a page with plots.")] = None,
    png: Annotated[Path | None, typer.Option(help="File for a picture of the curves.")] = None,
    pngs: Annotated[Path | None, typer.Option(help="Folder for a picture of each plot.")] = None,
    by_topology: Annotated[
        bool, typer.Option("--scaling", help="How speed grows with the processes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts, on stdout.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="The same as a table.")] = False,
    uri: Annotated[str | None, typer.Option(help="Read from MLflow, not from folders.")] = None,
) -> None:
    """What differs between runs, and where they got."""
    for_scripts = [name for name, on in {"--json": as_json, "--csv": as_csv}.items() if on]
    files = {"--png": png, "--pngs": pngs, "--html": html}
    _refuse_idle(x, files, by_topology, for_scripts)
    runs = _with_job(_found(named, uri))
    shown = metric or "train/loss"
    axis = x.value if x else "time" if is_timed(shown) else "step"
    _refuse_unrecorded(runs, metric, axis, files)
    series = _series(runs) if by_topology else []
    if for_scripts:
        from ringshard.report import export

        print((export.as_json if as_json else export.as_csv)(runs, shown).rstrip("\n"))
    else:
        _print(runs, shown, series)
    out = sys.stderr if for_scripts else sys.stdout
    for told in _written(runs, shown, axis, files, series, _title(named)):
        print(told, file=out)


def _title(named: list[str]) -> str:
    """Of a page: what was given, if it is one."""
    return Path(named[0]).resolve().name if len(named) == 1 else "Comparison"


def _found(named: list[str], uri: str | None) -> Sequence[Compared]:
    if uri is None:
        return find([Path(name) for name in named])
    from ringshard.report.mlflow_runs import find as find_in_mlflow  # takes seconds

    return find_in_mlflow(uri, named)


def _with_job(runs: Sequence[Compared]) -> list[Compared]:
    """The runs whose job can be read; of the others it is said that they are left out."""
    found = []
    for run in runs:
        try:
            run.config  # noqa: B018  # raises
            found.append(run)
        except ConfigError as error:
            print(f"{error}: left out", file=sys.stderr)
    if not found:
        raise ConfigError("no run is left to compare: give others")
    return found


def _series(runs: Sequence[Compared]) -> list[Series]:
    """How speed grows; of runs that can't tell it is said that they are left out."""
    for name in unique_names([run for run in runs if not tells_processes(run)]):
        print(f"{name} does not tell its processes: left out of --scaling", file=sys.stderr)
    return scaling(runs)


def _refuse_idle(
    x: Axis | None,
    files: Mapping[str, Path | None],
    by_topology: bool,
    for_scripts: Sequence[str],
) -> None:
    """Raises ConfigError for options that have no effect, or that no file can be written for."""
    if len(for_scripts) > 1:
        raise ConfigError(f"{' and '.join(for_scripts)}: stdout takes one of them")
    if x and not any(files.values()):
        raise ConfigError(f"--x {x.value}: nothing is drawn, give --html, --png or --pngs")
    if by_topology and for_scripts and not (files["--html"] or files["--pngs"]):
        raise ConfigError(f"--scaling: {for_scripts[0]} tells of runs alone, leave out one of them")
    for option, file in files.items():
        if file and not file.parent.is_dir():
            raise ConfigError(f"{option} {file}: there is no folder {file.parent}, make it first")
        if file and file.exists() and file.is_dir() != (option == "--pngs"):
            kind = "a folder, give a file" if file.is_dir() else "a file, give a folder"
            raise ConfigError(f"{option} {file}: it is {kind}")
    if files["--html"]:
        from ringshard.report.page.html import require_plotly

        require_plotly()


def _refuse_unrecorded(
    runs: Sequence[Compared], metric: str | None, axis: str, files: Mapping[str, Path | None]
) -> None:
    """Raises ConfigError for what no run has recorded, before anything is printed or written."""
    known = {key for run in runs for key in run.curves}
    trained = sorted(key for key in known if not is_timed(key))
    nothing = "none of these runs has recorded anything"
    if metric and metric not in known:
        told = f"take one of {', '.join(trained)}" if trained else f"{nothing}, leave it out"
        raise ConfigError(f"--metric {metric} was never recorded: {told}")
    for option, file in files.items():
        if file and not (trained or metric):
            raise ConfigError(f"{option} {file}: {nothing}, leave it out")
        if file and option == "--png" and not {metric, "train/loss", "val/loss"} & known:
            raise ConfigError(f"--png {file}: no loss was recorded, give --metric")
    source = AXES[axis][1]
    if axis in ("tokens", "flops") and source not in known:
        raise ConfigError(f"--x {axis}: none of these runs has recorded {source}, take --x step")
    if metric and is_timed(metric) and axis != "time":
        raise ConfigError(f"--x {axis}: {metric} is noted over time, take --x time")


def _print(runs: Sequence[Compared], metric: str, series: Sequence[Series]) -> None:
    width = None if sys.stdout.isatty() else 1000  # a pipe has no right edge
    console = Console(width=width, soft_wrap=False, highlight=False)
    console.print(tables.table(runs, metric))
    if over_seeds := tables.table_of_seeds(runs, metric):
        console.print(over_seeds)
    if by_key := tables.table_of_keys(runs):
        console.print(by_key[0])
        if by_key[1]:
            print(f"{len(by_key[1])} more keys differ: {', '.join(by_key[1])}\n")
    for one in series:
        print(f"{one.title}. {one.about}")
        console.print(tables.drawn(table_rows(one)))
    if spent := tables.spent_together(runs):
        print(spent)
    for sentence in tables.notes(runs, metric):
        print(sentence)


def _written(
    runs: Sequence[Compared],
    metric: str,
    axis: str,
    files: Mapping[str, Path | None],
    series: Sequence[Series],
    title: str,
) -> Iterator[str]:
    """Writes what was asked for, and tells of each when it is there."""
    if png := files["--png"]:
        from ringshard.report.curves import draw  # matplotlib takes a second

        draw(runs, metric, png, axis)
        yield f"curves: {png}"
    if folder := files["--pngs"]:
        from ringshard.report.pictures import draw_all

        for picture in draw_all(runs, metric, axis, folder, series):
            yield f"picture: {picture}"
    if html := files["--html"]:
        from ringshard.report.page.html import page

        write_whole(html, page(runs, metric, axis, title, series))
        yield f"page: {html}"
