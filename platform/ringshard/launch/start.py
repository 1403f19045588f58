"""Runs the members of a command one after another; all are checked before anything is written."""

import sys
from collections.abc import Iterator
from pathlib import Path

from ringshard.config.checks import check
from ringshard.config.complete import complete
from ringshard.config.compose import Command, Member
from ringshard.config.schema.hardware import Device, Scheduler
from ringshard.config.schema.job import Job
from ringshard.config.schema.launcher import OnFailure
from ringshard.errors import ConfigError
from ringshard.launch import show
from ringshard.launch.agent import Ended, explain, run_attempt
from ringshard.launch.freeze import freeze
from ringshard.launch.identity import Run, place
from ringshard.launch.prepare import prepare_all
from ringshard.launch.rundir import Outcome
from ringshard.launch.tracker import create_store


def start(command: Command, members: list[Member[Job]], module: str = "ringshard.train") -> int:
    """Runs what a command line asks for and returns the exit code."""
    for member in members:
        complete(member.config, Path.cwd())
        check(member.config)
    runs = place(command, members)
    if runs[0].job.launcher.dry_run:
        show.dry_run(runs)
        return 0
    return run_all(command, runs, module)


def run_all(command: Command, runs: list[Run], module: str = "ringshard.train") -> int:
    """Prepares the data of all, runs one after another; 1 where one failed, 128+n if stopped."""
    for run in runs:
        refuse_machine(run.job)
    todo = [run for run in runs if not _is_done(run)]
    prepare_all([run.job for run in todo])
    for tracking in {run.job.tracking.uri: run.job.tracking for run in todo}.values():
        create_store(tracking)
    rows: list[tuple[Run, str, int]] = []
    codes = list(_run_each(command, runs, module, rows))
    if len(runs) > 1:
        show.table(rows)
    return max(codes, default=0)


def _run_each(
    command: Command, runs: list[Run], module: str, rows: list[tuple[Run, str, int]]
) -> Iterator[int]:
    """Exit codes of the members; stops after Ctrl-C, or after a failure if the policy says so."""
    for index, run in enumerate(runs):
        if len(runs) > 1:
            print(f"\n[{index + 1}/{len(runs)}] {' '.join(run.overrides)}", flush=True)
        skip = _why_skipped(run)
        if skip:
            print(f"{show.short(run.dir.path)} {skip}: skipped")
            rows.append((run, skip, run.dir.last_attempt()))
            continue
        ended, attempt = run_one(command, run, module)
        rows.append((run, ended.outcome.name, attempt))
        yield ended.code
        stop = run.job.launcher.on_failure is OnFailure.stop
        if ended.outcome is Outcome.killed or (ended.outcome is Outcome.failed and stop):
            return


def run_one(command: Command, run: Run, module: str = "ringshard.train") -> tuple[Ended, int]:
    """A new attempt of a run; prints how it ended, a failure's traceback last."""
    with run.dir.claimed():
        attempt = freeze(run, command)
        ended = run_attempt(run.dir, attempt, run.job, module)
    if ended.outcome is Outcome.failed:
        print(f"\nrun {show.short(run.dir.path)} failed\n", file=sys.stderr)
        print(explain(run.dir, attempt), file=sys.stderr, flush=True)
    else:
        show.ended(run.dir, attempt, ended.outcome.name)
    return ended, attempt


def _is_done(run: Run) -> bool:
    return run.dir.outcome() is Outcome.done and not run.again


def _why_skipped(run: Run) -> str | None:
    if _is_done(run):
        return "done"
    return "running" if run.dir.is_running() else None


def refuse_machine(job: Job) -> None:
    """Raises ConfigError: what composes anywhere may still not run on this machine."""
    if job.hardware.scheduler is not Scheduler.local:
        raise ConfigError(
            f"hardware.scheduler={job.hardware.scheduler.name} is not supported in this version:"
            " use hardware=cpu_local or gpu_local"
        )
    drivers = [Path("/proc/driver/nvidia"), Path("/dev/nvidiactl"), Path("/dev/dxg")]
    if job.hardware.device is Device.cuda and not any(driver.exists() for driver in drivers):
        raise ConfigError(
            "hardware.device=cuda: this machine has no NVIDIA driver, use hardware=cpu_local"
        )
