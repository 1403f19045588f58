"""`ringshard runs …`: what is done to runs on disk and in the queue, also with the cluster down."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.table import Table

from ringshard.errors import ConfigError
from ringshard.launch import housekeeping
from ringshard.launch.rundir import RunDir
from ringshard.launch.state import State, ask_queue, job_id, state
from ringshard.launch.table import error, table
from ringshard.report.goodput import spent
from ringshard.report.runs import LOADER, Run, find

app = typer.Typer(no_args_is_help=True, help="Runs on disk and in the queue.")

Folders = Annotated[
    list[Path],
    typer.Argument(metavar="RUN…", help="Run folders, a sweep's folder, an output root."),
]
Maybe = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[RUN…]", help="As above; by default the output root ./outputs."),
]
One = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
Where = Annotated[
    list[str], typer.Option(help="Only runs with this value in their configuration: KEY=VALUE.")
]
States = Annotated[list[str], typer.Option("--state", help="Only runs that stand so.")]
Sweep = Annotated[str | None, typer.Option(help="Only runs of this sweep.")]


@app.command("list")
def list_(
    folders: Maybe = None,
    where: Where = [],  # noqa: B006  # typer reads it
    states: States = [],  # noqa: B006
    sweep: Sweep = None,
) -> None:
    """Where runs stand: state, step, loss, speed, what went wrong."""
    jobs = ask_queue()
    runs = _matching(find(folders or [Path("outputs")]), where, sweep)
    stands = {run.dir.path: state(run.dir, jobs) for run in runs}
    _require_states(states)
    shown = [run for run in runs if not states or stands[run.dir.path].name in states]
    _console().print(table((run.dir for run in shown), stands, jobs))


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 1000)  # a pipe has no right edge


def _require_states(names: list[str]) -> None:
    known = [one.name for one in State]
    for name in names:
        if name not in known:
            raise ConfigError(f"--state {name} is not known: take one of {', '.join(known)}")


def _matching(runs: list[Run], where: list[str], sweep: str | None) -> list[Run]:
    wanted = [text.partition("=") for text in where]
    for key, equals, _ in wanted:
        if not equals:
            raise ConfigError(f"--where {key} needs a value: give KEY=VALUE")
    return [
        run
        for run in runs
        if (sweep is None or run.dir.path.parent.name == sweep)
        and all(_is(run.config.get(key), text) for key, _, text in wanted)
    ]


def _is(value: object, text: str) -> bool:
    """Whether a text is a value, in any spelling that YAML or Python has for it."""
    typed = _typed(text)
    same = value == typed and isinstance(value, bool) == isinstance(typed, bool)
    return same or str(value) == text


def _typed(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        with suppress(yaml.YAMLError):
            return yaml.load(text, LOADER)
    return text


@app.command()
def show(run: One) -> None:
    """One run: its attempts, job, place and size, and where its time went."""
    (whole,) = _whole_runs([run], one=True)
    found = whole.dir
    stands = state(found, ask_queue())
    accounted = housekeeping.accounted(found)
    facts = {
        "folder": str(found.path),
        "state": f"{stands.name}: {stands.value}" + (f" (sacct: {accounted})" if accounted else ""),
        "job": job_id(found) or "none",
        "error": error(found, stands),
        "record": "; ".join(whole.faults),
        "pinned": "yes" if housekeeping.is_pinned(found) else "",
        "size": housekeeping.readable(housekeeping.size(found.path)),
    }
    print("\n".join(f"{name:<8} {value}" for name, value in facts.items() if value))
    _console().print(_attempts(found, stands))
    print(*spent(whole.goodput), sep="\n")


def _attempts(run: RunDir, stands: State) -> Table:
    shown = Table(box=None, pad_edge=False)
    for title in ("attempt", "began", "job", "hosts", "outcome", "why", "saved step"):
        shown.add_column(title)
    for attempt in housekeeping.attempts(run, stands):
        shown.add_row(*attempt)
    return shown


@app.command()
def logs(
    run: One,
    follow: Annotated[bool, typer.Option("-f", help="Go on as it grows, to its end.")] = False,
    rank: Annotated[int, typer.Option(help="Which rank's.")] = 0,
    attempt: Annotated[int | None, typer.Option(help="Which attempt's; the newest.")] = None,
) -> None:
    """What a rank printed."""
    (found,) = _runs([run], one=True)
    try:
        for piece, text in enumerate(housekeeping.log(found, rank, attempt, follow)):
            if not (piece or text):
                print(f"rank {rank} has printed nothing yet", file=sys.stderr, flush=True)
            print(text, end="", flush=True)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command()
def cancel(folders: Folders) -> None:
    """Stop runs that wait or are at work; they save what they can. Of a sweep that is named as a
    whole no further member begins."""
    jobs, named = ask_queue(), {folder.resolve() for folder in folders}
    stand = [(run, state(run, jobs)) for run in _runs(folders)]
    told = housekeeping.cancel_all(
        stand, with_sweep={run for run, _ in stand if run.path.resolve() not in named}
    )
    for (run, _), done in zip(stand, told, strict=True):
        print(f"{run.path.name}  {done}", flush=True)
    raise typer.Exit(any(isinstance(done, ConfigError) for done in told))


_LEFT = ["launcher.wait=false", "launcher.metric=null", "launcher.minimize=true"]
"""A command that waits for one run would begin the next one when that has ended."""


@app.command()
def retry(folders: Folders) -> None:
    """Go on with the runs that ended without being done; those on Slurm are not waited for."""
    from ringshard.config.compose import Command
    from ringshard.launch.resume import resume_all

    jobs, ended = ask_queue(), []
    for run in _runs(folders):
        stands = state(run, jobs)
        if stands in (State.done, State.pruned) or stands.lives:
            print(f"{run.path.name}  {stands.name}: skipped", flush=True)
        else:
            ended.append(run.path)
    raise typer.Exit(resume_all(ended, Command("train", [], _LEFT)))


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def resume(context: typer.Context, run: One) -> None:
    """Go on with one run, with other hardware or a longer one: RUN key=value …"""
    from ringshard.config.compose import Command
    from ringshard.launch.resume import resume as go_on

    (found,) = _runs([run], one=True)
    raise typer.Exit(go_on(found.path, Command("train", [], list(context.args))))


@app.command()
def du(folders: Maybe = None) -> None:
    """How much room runs take."""
    shown = Table(box=None, pad_edge=False)
    for title in ("run", "checkpoints", "metrics", "rest", "whole"):
        shown.add_column(title, justify="left" if title == "run" else "right")
    for run in (one.dir for one in find(folders or [Path("outputs")])):
        whole = housekeeping.size(run.path)
        parts = [housekeeping.size(run.path / name) for name in ("checkpoints", "track")]
        numbers = [*parts, whole - sum(parts), whole]
        shown.add_row(run.path.name, *map(housekeeping.readable, numbers))
    _console().print(shown)


@app.command()
def delete(
    folders: Folders,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else it is only shown.")] = False,
) -> None:
    """Remove runs, but none that is pinned, waits or is at work; first shows which."""
    jobs = ask_queue()
    for run in _runs(folders):
        kept = housekeeping.why_kept(run, state(run, jobs))
        if not kept and yes:
            housekeeping.delete(run)
        room = housekeeping.readable(housekeeping.size(run.path)) if not yes else ""
        what = f"kept: {kept}" if kept else "deleted" if yes else f"would be deleted, {room}"
        print(f"{run.path}  {what}", flush=True)
    if not yes:
        print("nothing was deleted: --yes does it")


@app.command()
def pin(folders: Folders, undo: Annotated[bool, typer.Option("--undo")] = False) -> None:
    """Keep runs from being deleted."""
    for run in _runs(folders):
        housekeeping.pin(run, not undo)


def _runs(folders: list[Path], one: bool = False) -> list[RunDir]:
    return [run.dir for run in _whole_runs(folders, one)]


def _whole_runs(folders: list[Path], one: bool) -> list[Run]:
    runs = find(folders)
    if one and len(runs) != 1:
        raise ConfigError(f"{folders[0]} holds {len(runs)} runs: give the folder of one")
    return runs
