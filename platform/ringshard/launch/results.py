"""What came out of runs, the last value of `launcher.metric`, for the sweeper of Hydra's protocol
that `hydra/sweeper=` names."""

from dataclasses import replace

from ringshard.child import ChildError
from ringshard.config.command import sweeper_of
from ringshard.config.compose import Command, Member, Result, drive
from ringshard.config.schema.hardware import Scheduler
from ringshard.config.schema.job import Job
from ringshard.errors import ConfigError
from ringshard.launch.attended import Attendance
from ringshard.launch.identity import Run, named_by_command, place
from ringshard.launch.progress import last_value
from ringshard.launch.start import check_all, run_batch
from ringshard.launch.state import State, ask_queue, state
from ringshard.launch.table import error


def drive_all(command: Command, module: str = "ringshard.train") -> int:
    """Runs what another sweeper asks for, batch by batch; returns the exit code."""
    if command.dry_run:
        sweeper = sweeper_of(command.overrides)
        raise ConfigError(
            f"hydra/sweeper={sweeper} asks for what results tell: leave --dry-run out"
        )
    with Attendance() as sweeps:
        drive(command, Job, lambda members: answer(command, members, module, sweeps))
    return 0


def answer(
    command: Command, members: list[Member[Job]], module: str, sweeps: Attendance
) -> list[Result]:
    """Runs a batch to its end; the result of each member, done before or now, or its failure.

    Members that are one and the same run share it. Raises ConfigError for a bad member,
    KeyboardInterrupt where the user stops the command.
    """
    check_all(members)
    job = members[0].config
    metric = _require_results(command, job)
    sweep = job.sweep.name or named_by_command(command)
    named = [replace(member, config=_named(member.config, sweep)) for member in members]
    runs = [place(command, [member])[0] for member in named]
    unique = list({run.dir.path: run for run in runs}.values())
    if run_batch(command, unique, sweeps, module).stopped:
        raise KeyboardInterrupt
    jobs = ask_queue()
    return [result(run, state(run.dir, jobs), metric) for run in runs]


def _require_results(command: Command, job: Job) -> str:
    """The metric that is the result."""
    sweeper = f"hydra/sweeper={sweeper_of(command.overrides)}"
    if job.launcher.metric is None:
        raise ConfigError(
            f"launcher.metric is missing: {sweeper} chooses by results, give"
            " launcher.metric=val/loss"
        )
    if job.launcher.dry_run:
        raise ConfigError(f"launcher.dry_run=true: {sweeper} chooses by results, leave it out")
    if job.hardware.scheduler is Scheduler.slurm and not job.launcher.wait:
        raise ConfigError(
            f"launcher.wait=false: {sweeper} waits for results, give launcher.wait=true"
        )
    return job.launcher.metric


def _named(job: Job, sweep: str) -> Job:
    return replace(job, sweep=replace(job.sweep, name=sweep))


def result(run: Run, stands: State, metric: str) -> Result:
    """The result of a run that ended; NaN where it diverged."""
    if stands is not State.done:
        why = error(run.dir, stands) or stands.value
        return ChildError(1, f"{run.dir.path} is {stands.name}: {why}")
    value = last_value(run.dir.path, metric)
    if value is None:
        return ChildError(1, f"{run.dir.path} never recorded launcher.metric={metric}")
    return value
