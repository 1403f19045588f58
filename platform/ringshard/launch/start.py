"""Runs the members of a command one after another; all are checked before anything is written."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ringshard.config.checks import check
from ringshard.config.complete import complete
from ringshard.config.compose import Command, Member
from ringshard.config.effects import refuse_filled_in, refuse_policy
from ringshard.config.schema.hardware import Device, Scheduler
from ringshard.config.schema.job import Job
from ringshard.config.schema.launcher import OnFailure
from ringshard.config.schema.search import Sampler
from ringshard.errors import ConfigError
from ringshard.launch import manifest, show
from ringshard.launch.agent import Ended, explain, run_attempt
from ringshard.launch.attended import Attendance
from ringshard.launch.environment import gpus, rank_environment
from ringshard.launch.freeze import freeze
from ringshard.launch.identity import Run, place
from ringshard.launch.plan import show_plan
from ringshard.launch.prepare import prepare_runs
from ringshard.launch.rundir import Outcome, RunningError
from ringshard.launch.state import State, ask_queue, is_wanted, split, state
from ringshard.launch.together import run_together
from ringshard.launch.tracker import create_store


def start(command: Command, members: list[Member[Job]], module: str = "ringshard.train") -> int:
    """Runs what a command line asks for and returns the exit code."""
    check_all(members)
    _refuse_search(members)
    if len(members) == 1:
        refuse_policy(members[0].config.launcher)
    runs = place(command, members)
    _refuse_two_places(runs)
    if command.dry_run or runs[0].job.launcher.dry_run:
        show_plan(runs, module)
        return 0
    return run_all(command, runs, module)


def _refuse_search(members: list[Member[Job]]) -> None:
    for sampler in {member.config.search.sampler for member in members} - {Sampler.none}:
        raise ConfigError(
            f"search.sampler={sampler.name} would have no effect: name it as search={sampler.name}"
        )


def check_all(members: list[Member[Job]]) -> None:
    """Completes the jobs in place; raises ConfigError for what does not fit."""
    for member in members:
        refuse_filled_in(member.config.data, member.config.user, member.overrides)
        complete(member.config, Path.cwd())
        check(member.config)


def run_all(command: Command, runs: list[Run], module: str = "ringshard.train") -> int:
    """Prepares the data of all, runs one after another; 1 where one failed, 128+n if stopped."""
    with Attendance() as sweeps:
        return run_batch(command, runs, sweeps, module).code


@dataclass(frozen=True)
class Batch:
    """How the runs of a command ended."""

    code: int
    """The exit code."""
    stopped: bool
    """Whether the user stopped the command, which a single run that is cancelled does not."""


def run_batch(
    command: Command, runs: list[Run], sweeps: Attendance, module: str = "ringshard.train"
) -> Batch:
    """As `run_all`, for one of several batches of a command."""
    if runs[0].job.hardware.scheduler is Scheduler.slurm:
        code = _submit(command, runs, module)
        return Batch(code, code > 128)
    for run in runs:
        refuse_machine(run.job)
    todo = [run for run in runs if not _is_done(run)]
    prepare_runs(todo)
    create_stores(todo)
    rows: list[tuple[Run, str, int]] = []
    if todo and runs[0].sweep is not None:
        sweeps.begin(runs[0].dir.path.parent)
    manifest.write(runs)
    ends = list(_run_each(command, runs, module, rows))
    manifest.write(runs)
    if len(runs) > 1:
        show.table(rows)
    show.results([run for run, _, _ in rows])
    code = max((ended.code for ended in ends), default=0)
    return Batch(code, any(ended.stopped for ended in ends))


def _submit(command: Command, runs: list[Run], module: str) -> int:
    """The same on Slurm: what is missing is submitted, and watched to its end where asked."""
    from ringshard.launch.slurm import start as slurm  # submitit takes a third of a second
    from ringshard.launch.slurm.submission import submitting
    from ringshard.launch.slurm.watch import watch

    slurm.require_cluster()
    slurm.tell_unused(runs[0].job)
    with submitting(Path(runs[0].job.output.root)):
        todo, rest = split(runs, ask_queue())
        for run, stands in rest:
            print(f"{show.short(run.dir.path)} {stands.name}: skipped")
        for run in todo:
            _refuse_overtaken(run)
        if todo:
            missing = prepare_runs(todo, ready_only=True)
            create_stores(todo)
            taken: dict[str, list[Run]] = {}
            try:
                for job, members in slurm.submit_all(command, todo, missing, module):
                    taken[job] = members
            finally:  # sbatch may refuse the rest
                if taken:
                    slurm.announce_end(taken)
                    manifest.write(runs)
        else:
            manifest.write(runs)
    return watch(runs) if runs[0].job.launcher.wait else 0


def create_stores(runs: list[Run]) -> None:
    """Makes the databases that the runs are tracked in; raises ConfigError."""
    for tracking in {run.job.tracking.uri: run.job.tracking for run in runs}.values():
        create_store(tracking)


def _run_each(
    command: Command, runs: list[Run], module: str, rows: list[tuple[Run, str, int]]
) -> Iterator[Ended]:
    """How the members ended; stops after Ctrl-C, or after a failure if the policy says so."""
    limit = runs[0].job.launcher.max_parallel or 1
    together = limit > 1 and len(runs) > 1
    ends = (
        run_together(command, runs, module, limit) if together else _in_turn(command, runs, module)
    )
    for run, ended in ends:
        how = ended if isinstance(ended, str) else ended.outcome.name
        rows.append((run, how, run.dir.last_attempt()))
        if isinstance(ended, str):
            print(f"{show.short(run.dir.path)} {ended}: skipped")
            continue
        yield ended if run is runs[-1] else replace(ended, code=max(ended.code, ended.stopped))
        if together:
            print(f"{show.short(run.dir.path)} {how}", flush=True)
            continue
        stop = run.job.launcher.on_failure is OnFailure.stop
        if ended.stopped or (ended.outcome is Outcome.failed and stop):
            return


def _in_turn(command: Command, runs: list[Run], module: str) -> Iterator[tuple[Run, Ended | str]]:
    """One run after another, each of which has the terminal."""
    for index, run in enumerate(runs):
        if len(runs) > 1:
            print(f"\n[{index + 1}/{len(runs)}] {' '.join(run.overrides)}", flush=True)
        yield run, _run_or_skip(command, run, module)


def _run_or_skip(command: Command, run: Run, module: str) -> Ended | str:
    """How a new attempt ended, or why there was none: it is running elsewhere, or done by now."""
    stands = state(run.dir, ask_queue())
    wanted = run.after is not None or is_wanted(stands, run.job.launcher.retry)
    if not wanted and stands is not State.done:  # which may change until the run is held
        return stands.name
    try:
        with run.dir.claimed():
            if _is_done(run):
                return "done"
            _refuse_overtaken(run)
            attempt = freeze(run, command)
            ended = run_attempt(run.dir, attempt, run.job, module)
    except RunningError:
        if run.after is not None:  # a resume is about this run alone
            raise
        return "running"
    if ended.outcome is Outcome.failed:
        print(f"\nrun {show.short(run.dir.path)} failed\n", file=sys.stderr)
        print(explain(run.dir, attempt), file=sys.stderr, flush=True)
    else:
        show.ended(run.dir, attempt, ended.outcome.name)
    return ended


def _is_done(run: Run) -> bool:
    return run.dir.outcome() is Outcome.done and run.after is None


def _refuse_overtaken(run: Run) -> None:
    """Raises ConfigError where another command has gone on with a run since this one looked at it;
    to be called by whoever holds the run."""
    last = run.dir.last_attempt()
    if run.after is not None and last != run.after:
        raise ConfigError(
            f"{run.dir.path} has gone on in attempt {last} meanwhile: look at it, and resume it"
            " again if that is still wanted"
        )


def refuse_unready(run: Run) -> None:
    """Raises ConfigError or ChildError for what keeps this run, whatever others do, from being
    submitted."""
    _refuse_overtaken(run)
    prepare_runs([run], ready_only=True)


def _refuse_two_places(runs: list[Run]) -> None:
    """Raises ConfigError for a sweep of which a part runs here and a part on a cluster."""
    if len({run.job.hardware.scheduler for run in runs}) > 1:
        raise ConfigError(
            "hardware.scheduler differs between the members: start those of the cluster and those"
            " of this machine with a command each"
        )


def refuse_machine(job: Job) -> None:
    """Raises ConfigError: what composes anywhere may still not run on this machine."""
    if job.hardware.scheduler is Scheduler.slurm:
        from ringshard.launch.slurm import start as slurm  # submitit takes a third of a second

        slurm.require_cluster()
        return
    drivers = [Path("/proc/driver/nvidia"), Path("/dev/nvidiactl"), Path("/dev/dxg")]
    if job.hardware.device is not Device.cuda:
        return
    if not any(driver.exists() for driver in drivers):
        raise ConfigError(
            "hardware.device=cuda: this machine has no NVIDIA driver, use hardware=cpu_local"
        )
    asked, found = job.hardware.processes_per_node, gpus(rank_environment(job.hardware))
    if found is not None and asked > found:
        raise ConfigError(
            f"hardware.processes_per_node={asked}: this machine has {found} GPUs for them, one each"
        )
