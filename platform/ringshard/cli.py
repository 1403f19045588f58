"""`ringshard …`: what is done to runs after they exist."""

import os
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ringshard import runs
from ringshard.checkpoint.commands import app as checkpoints
from ringshard.child import ChildError
from ringshard.comparison import compare
from ringshard.errors import ConfigError, of_path
from ringshard.launch.slurm.queue import SlurmError
from ringshard.report.runs import Run, find
from ringshard.streams import steady
from ringshard.tracking import reap, shipper, store
from ringshard.tracking import sweep as sweeps

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
track = typer.Typer(no_args_is_help=True, help="Runs in MLflow.")
app.add_typer(track, name="track")
app.add_typer(checkpoints, name="checkpoint")
app.add_typer(runs.app, name="runs")

Folders = Annotated[
    list[Path],
    typer.Argument(metavar="RUN…", help="Run folders, a sweep's folder, an output root."),
]


@track.command()
def ui(
    root: Annotated[Path, typer.Option(help="Output root of the runs.")] = Path("outputs"),
    port: Annotated[int, typer.Option(help="Port on this machine's loopback.")] = 5000,
) -> None:
    """Show an output root's runs in the browser."""
    database = (root / "mlflow.db").absolute()
    if not database.exists():
        raise ConfigError(f"--root {root} holds no mlflow.db: give the output root of your runs")
    _require_free(port)
    print(f"MLflow on http://127.0.0.1:{port} in some seconds; Ctrl-C ends it", flush=True)
    _become_server(database, port)


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(
                f"--port {port} can't be used ({error.strerror}): try another"
            ) from error


def _become_server(database: Path, port: int) -> NoReturn:
    """One worker and no job runners: 2 processes instead of 10."""
    command = f"-m mlflow server --host 127.0.0.1 --port {port} --workers 1".split()
    options = {
        "--backend-store-uri": f"sqlite:///{database}",
        "--artifacts-destination": str(database.parent / "mlartifacts"),
        "--uvicorn-opts": "--log-level critical",  # else Ctrl-C ends in a traceback
    }
    command += [text for option in options.items() for text in option]
    lean = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONWARNINGS": "ignore"}
    environment = {**os.environ, **store.ENVIRONMENT, **lean}
    os.execve(sys.executable, [sys.executable, *command], environment)


@track.command()
def sync(
    folders: Folders,
    uri: Annotated[str | None, typer.Option(help="Instead of the run's tracking.uri.")] = None,
    experiment: Annotated[str | None, typer.Option(help="Instead of tracking.experiment.")] = None,
) -> None:
    """Send what MLflow does not have yet; nothing is sent twice."""
    runs, code = find(folders), 0
    steps = [partial(_sync, run, uri, experiment) for run in runs]
    for step in (*steps, partial(_tell_sweeps, runs)):
        try:
            step()
        except ConfigError as error:  # of one run; the others are sent all the same
            print(error, file=sys.stderr)
            code = 2
    raise typer.Exit(code)


def _tell_sweeps(runs: list[Run]) -> None:
    for sweep in reap.sweeps_of(runs):
        sweeps.tell_all(sweep)


def _sync(run: Run, uri: str | None, experiment: str | None) -> None:
    address = uri or str(run.config["tracking.uri"])
    name = experiment or str(run.config["tracking.experiment"])
    store.check(address)
    done = shipper.sync(run.dir.path, run.attempt, address, name)
    lost = f", {done.lost} lines are lost" if done.lost else ""
    refused = f", but no {', '.join(done.refused)}" if done.refused else ""
    told = f"{run.dir.path}: all points are in {address}, status {done.status}{lost}{refused}"
    print(told, flush=True)


@track.command("reap")
def reap_(
    root: Annotated[Path, typer.Argument(help="Output root, or any folder as above.")] = Path(
        "outputs"
    ),
    lost_host: Annotated[
        list[str], typer.Option(help="A machine that is gone for good, with what ran on it.")
    ] = [],  # noqa: B006  # typer reads it
) -> None:
    """Close in MLflow the runs that died with their machine; say which can't be judged here."""
    closed = 0
    for path, judged in reap.reap(find([root]), lost_host):
        print(f"{path}: {judged.why}", flush=True)
        closed += judged.closed
    print(f"{closed} runs were closed in MLflow")


app.command()(compare)


def main() -> None:
    """The console script; a user's mistake is one sentence and exit code 2."""
    try:
        with steady():
            app()
    except (ConfigError, OSError) as error:
        print(of_path(error) if isinstance(error, OSError) else error, file=sys.stderr)
        sys.exit(2)
    except SlurmError as error:
        print(error.sentence, file=sys.stderr)
        sys.exit(1)
    except ChildError as error:
        if str(error):
            print(error, file=sys.stderr)
        sys.exit(error.code)


if __name__ == "__main__":
    main()
