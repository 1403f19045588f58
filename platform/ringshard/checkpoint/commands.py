"""`ringshard checkpoint …`: what is done to checkpoints of a run."""

import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ringshard.checkpoint import directory
from ringshard.checkpoint.best import BEST
from ringshard.checkpoint.manifest import DamagedError, Manifest
from ringshard.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Checkpoints of a run.")

Folder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
Step = Annotated[
    str | None,
    typer.Option(metavar="STEP|PIN", help="Instead of the newest; best: of the lowest loss."),
]
Reason = Annotated[str, typer.Option(help="Name of the pin.")]


class Format(Enum):
    """What a checkpoint is turned into."""

    transformers = "transformers"
    torch = "torch"


@app.command("list")
def list_(run: Folder) -> None:
    """Show step, age, size and pins of each checkpoint."""
    table = Table("step", "saved", "MB", "processes", "pinned for", box=None)
    pins = directory.pins(_root(run))
    for step, path in _committed(run).items():
        saved = datetime.datetime.fromtimestamp(path.stat().st_mtime)
        reasons = ", ".join(sorted(reason for reason, name in pins.items() if name == path.name))
        table.add_row(str(step), f"{saved:%Y-%m-%d %H:%M}", *_size_and_world(path), reasons)
    Console().print(table)


@app.command()
def verify(run: Folder, step: Step = None) -> None:
    """Compare every byte with its digest; exit code 1 where one differs."""
    damaged = False
    for path in _committed(run).values() if step is None else [_chosen(run, step)]:
        try:
            with directory.reading(path):
                Manifest.verified(path)
            print(f"{path.name}: intact")
        except directory.RemovedError:
            print(f"{path.name}: removed meanwhile")
        except DamagedError as error:
            print(f"{path.name}: {error}")
            damaged = True
    raise typer.Exit(int(damaged))


@app.command()
def pin(run: Folder, step: Step = None, reason: Reason = "mine") -> None:
    """Keep a checkpoint whatever `checkpoint.keep` says; a reason keeps one at a time."""
    path = _chosen(run, step)
    directory.pin(path, _name(reason))
    print(f"{path.name} is kept for {reason}")


@app.command()
def unpin(run: Folder, reason: Reason = "mine") -> None:
    """Let a checkpoint go that was pinned."""
    if reason not in directory.pins(_root(run)):
        raise ConfigError(f"--reason {reason} pins nothing: see `ringshard checkpoint list {run}`")
    directory.unpin(_root(run), reason)


@app.command()
def export(
    run: Folder,
    to: Annotated[Path, typer.Option(help="New folder, or new file with --format torch.")],
    step: Step = None,
    as_: Annotated[Format, typer.Option("--format", help="Who reads it.")] = Format.transformers,
    averaged: Annotated[
        bool, typer.Option("--averaged", help="The weights' averages (optimizer.ema_decay).")
    ] = False,
) -> None:
    """Write a checkpoint's weights as transformers or torch reads them."""
    from ringshard.checkpoint.export import to_torch, to_transformers  # torch takes seconds

    path = _chosen(run, step)
    write = to_transformers if as_ is Format.transformers else to_torch
    write(path, to, averaged=averaged)
    print(f"{path.name} is in {to}")


def _root(run: Path) -> Path:
    if not (run / "checkpoints").is_dir():
        raise ConfigError(f"{run} has no folder checkpoints: give the folder of a run")
    return run / "checkpoints"


def _committed(run: Path) -> dict[int, Path]:
    found = directory.committed(_root(run))
    if not found:
        raise ConfigError(f"{run} has no complete checkpoint: wait for the first one")
    return found


def _chosen(run: Path, step: str | None) -> Path:
    known = _committed(run)
    if step is None:
        return known[max(known)]
    found = directory.named(_root(run), step)
    if found is None:
        names = ", ".join(directory.names(_root(run)))
        raise ConfigError(f"--step {step} is not there: take one of {names}")
    return found


def _size_and_world(path: Path) -> tuple[str, str]:
    try:
        manifest = Manifest.read(path)
    except DamagedError:
        return "damaged", ""
    size = sum(entry.size for entry in manifest.files.values())
    return f"{size / 1e6:,.1f}", str(manifest.about["world_size"])


def _name(reason: str) -> str:
    if reason == BEST:
        raise ConfigError(f"--reason {reason} is the run's own: choose another word")
    if not reason.replace("-", "").isalnum() or reason.isdecimal():
        raise ConfigError(
            f"--reason {reason} names a file: use letters, digits and dashes, and a letter at least"
        )
    return reason
