"""What every job's command line goes through: one sentence and exit code 2 for a user's mistake."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ringshard.child import ChildError
from ringshard.config.command import parse, sweeper_of
from ringshard.config.compose import Beneath, Command, Member, compose
from ringshard.config.schema.evaluation import EvaluateJob
from ringshard.config.schema.job import Job
from ringshard.config.schema.preflight import PreflightJob
from ringshard.config.schema.prepare import PrepareJob
from ringshard.config.space import is_search
from ringshard.errors import ConfigError, of_path
from ringshard.launch import evaluation
from ringshard.launch.chosen import choose_runs
from ringshard.launch.preflight import start as look
from ringshard.launch.prepare import prepare_and_print
from ringshard.launch.resume import resume
from ringshard.launch.slurm.queue import SlurmError
from ringshard.launch.start import start
from ringshard.streams import steady

T = TypeVar("T")


def run_job_app(
    config_name: str,
    argv: list[str],
    schema: type[T],
    run: Callable[[Command, list[Member[T]]], int],
    go_on: Callable[[Path, Command], int] | None = None,
    beneath: Beneath[T] | None = None,
    drive: Callable[[Command], int] | None = None,
) -> int:
    """Composes a command line with Hydra, gives all its members to `run`, returns the exit code.

    The defaults of `conf/<config_name>.yaml` start with `<config_name>_schema`, which is `schema`,
    and `hydra_ringshard`. `go_on` answers `resume=DIR`; a job without it has no such argument.
    `beneath` gives the values of what a command line does not name: see `compose`. `drive` answers
    a command line whose runs are chosen by results.
    """
    with steady():
        return _answered(config_name, argv, schema, run, go_on, beneath, drive)


def _answered(
    config_name: str,
    argv: list[str],
    schema: type[T],
    run: Callable[[Command, list[Member[T]]], int],
    go_on: Callable[[Path, Command], int] | None,
    beneath: Beneath[T] | None,
    drive: Callable[[Command], int] | None,
) -> int:
    """The same, with a user's mistake as one sentence."""
    try:
        command, run_dir = parse(config_name, argv)
        if run_dir is not None:
            if go_on is None:
                raise ConfigError(f"resume={run_dir}: only train.py goes on with a run")
            return go_on(run_dir, command)
        if sweeper := sweeper_of(command.overrides):
            if drive is None:
                raise ConfigError(f"hydra/sweeper={sweeper}: only train.py has results")
            return drive(command)
        if drive and not command.prints and is_search(command.overrides):
            return drive(command)
        members = compose(command, schema, beneath)
        return run(command, members) if members else 0
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(of_path(error), file=sys.stderr)
        return 2
    except SlurmError as error:
        print(error.sentence, file=sys.stderr)
        return 1
    except ChildError as error:
        if str(error):
            print(error, file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 130


def train() -> int:
    """`ringshard-train`, the same as jobs/train.py."""
    return run_job_app("train", sys.argv[1:], Job, start, resume, drive=choose_runs)


def prepare() -> int:
    """`ringshard-prepare`, the same as jobs/prepare.py."""
    return run_job_app("prepare", sys.argv[1:], PrepareJob, prepare_and_print)


def preflight() -> int:
    """`ringshard-preflight`, the same as jobs/preflight.py."""
    return run_job_app("preflight", sys.argv[1:], PreflightJob, look)


def evaluate() -> int:
    """`ringshard-evaluate`, the same as jobs/evaluate.py."""
    argv = [evaluation.spelled_out(word) for word in sys.argv[1:]]
    start, beneath = evaluation.start, evaluation.beneath
    return run_job_app("evaluate", argv, EvaluateJob, start, beneath=beneath)
