"""`resume=<run directory>`: the job goes on as it was frozen, whatever YAML and code say by now.

The command line may bring new hardware, parallelism, micro-batch, launcher, tracking, a longer run;
what would change the curve is refused by name.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ringshard.child import ChildError
from ringshard.config.checks import check
from ringshard.config.complete import complete
from ringshard.config.compose import Command, compose, quoted
from ringshard.config.effects import refuse_policy
from ringshard.config.leaves import leaves, named, put, under
from ringshard.config.schema.hardware import Scheduler
from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import build, plain
from ringshard.errors import ConfigError
from ringshard.launch.attended import Attendance
from ringshard.launch.identity import Run
from ringshard.launch.plan import show_plan
from ringshard.launch.rundir import Outcome, Record, RunDir
from ringshard.launch.start import refuse_unready, run_all, run_batch
from ringshard.launch.state import State, ask_queue, state

# What may differ from the frozen job without changing the curve up to now.
MAY_CHANGE = (
    *("hardware", "parallelism", "checkpoint", "tracking", "launcher", "debug"),
    *("train.micro_batch", "train.steps", "train.tokens"),
    *("train.log_every", "train.eval_every", "train.eval_sequences", "train.detect_anomaly"),
)
_REFUSALS = (ConfigError, ChildError)


def resume(path: Path, command: Command, module: str = "ringshard.train") -> int:
    """Runs the next attempt of a run and returns the exit code; raises ConfigError."""
    run = resumed(path, command)
    if command.dry_run or run.job.launcher.dry_run:
        show_plan([run], module)
        return 0
    return run_all(command, [run], module)


def resume_all(paths: list[Path], command: Command) -> int:
    """The same for many: members of a sweep go to Slurm together; what can't go on by itself holds
    up no other, and is told at the end."""
    alike: dict[str, list[Run]] = {}
    codes, errors = [0], list[Exception]()
    for path in paths:
        try:
            run = resumed(path, command)
            alike.setdefault(_submitted_with(run), []).append(run)
        except _REFUSALS as error:
            errors.append(error)
    try:
        with Attendance() as sweeps:
            for runs in alike.values():
                codes.append(_run_ready(command, runs, errors, sweeps))
                if codes[-1] > 128:  # the user wants no more
                    break
    finally:
        for told in filter(str, errors):
            print(told, file=sys.stderr, flush=True)
    return max(*codes, 2 if errors else 0)


def _run_ready(
    command: Command, runs: list[Run], errors: list[Exception], sweeps: Attendance
) -> int:
    """Runs a group, without those that can't go on by themselves."""
    before = [run.dir.last_attempt() for run in runs]
    try:
        return run_batch(command, runs, sweeps).code
    except _REFUSALS as error:
        begun = [run.dir.last_attempt() for run in runs] != before
        ready = runs if begun or len(runs) == 1 else [run for run in runs if _is_ready(run, errors)]
        if len(ready) == len(runs):
            errors.append(error)
            return 0
    return _run_ready(command, ready, errors, sweeps) if ready else 0


def _is_ready(run: Run, errors: list[Exception]) -> bool:
    try:
        refuse_unready(run)
    except _REFUSALS as error:
        errors.append(error)
        return False
    return True


def _submitted_with(run: Run) -> str:
    """Equal for runs that may be submitted together: launcher.max_parallel is about all of them."""
    if run.job.hardware.scheduler is Scheduler.local:
        return str(run.dir.path)
    folder = run.dir.path.parent if run.sweep else run.dir.path
    return json.dumps([str(folder), plain(run.job.launcher), plain(run.job.user)])


def resumed(path: Path, command: Command) -> Run:
    """The run as its next attempt is to be; raises ConfigError where it can't go on so."""
    run_dir = RunDir(path)
    attempt = run_dir.last_attempt()
    if attempt == 0:
        raise ConfigError(f"resume={path}: the run has no attempt to go on from, start a new run")
    # Whoever holds the run is at work in it, even after its last word.
    stands = State.running if run_dir.is_running() else state(run_dir, ask_queue())
    if stands.lives:
        raise ConfigError(
            f"resume={path}: the run is {stands.name}, wait for its end or stop it first"
        )
    record = run_dir.about()
    before = run_dir.overrides(attempt)
    job = _changed(run_dir.job(attempt), record, before, command)
    check(job)
    _refuse_shorter(run_dir, attempt, job)
    overrides = _merged(before, command.overrides)
    return Run(job, overrides, record.signature, record.sweep, run_dir, after=attempt)


def _changed(frozen: Job, record: Record, before: list[str], command: Command) -> Job:
    """The frozen job with what the command line asks for; raises ConfigError by name."""
    config_name, options = record.config_name, [*record.options, *command.options]
    # The default root lies in the folder of the command, which may be another one by now.
    before = _merged(before, [quoted("output.root", frozen.output.root)])
    old = _job(Command(config_name, options, before))
    new = _job(Command(config_name, options, _merged(before, command.overrides)))
    leftover = new.parallelism.dp_shard == -1
    complete(old, Path.cwd())
    complete(new, Path.cwd())
    tree = plain(frozen)
    for key, value in _asked(frozen, old, new, before, command.overrides).items():
        if not under(key, MAY_CHANGE):
            raise ConfigError(
                f"{key}={value} cannot change in a resumed run, which would no longer be the same"
                " run: leave it out, or start a new run"
            )
        if key == "launcher.on_failure":
            refuse_policy(new.launcher)
        put(tree, key, value)
    if leftover:  # of the processes that there are now
        put(tree, "parallelism.dp_shard", -1)
    job = cast(Job, build(Job, tree))
    complete(job, Path.cwd())
    return job


def _asked(frozen: Job, old: Job, new: Job, before: list[str], added: list[str]) -> dict[str, Any]:
    """The keys that the new overrides change, and those they name that are otherwise in the frozen
    job; `old` and `new` are what both command lines compose to today."""
    frozen = replace(frozen, data=replace(frozen.data, prepared=None, digest=None))
    then, today = leaves(frozen), leaves(old)
    names = tuple(map(named, added))
    kept = tuple(name for name in map(named, before) if name not in names)
    return {
        key: value
        for key, value in leaves(new).items()
        if today.get(key) != value
        or (under(key, names) and not under(key, kept) and then.get(key) != value)
    }


def _merged(before: list[str], added: list[str]) -> list[str]:
    """The old overrides with the values of the new; a key that came with a plus keeps it.

    Another option of a group brings its own values: what was said of the old one goes.
    """
    anew = [override for override in added if override not in before]
    chosen = tuple(f"{named(override)}." for override in anew if "." not in named(override))
    kept = [override for override in before if not named(override).startswith(chosen)]
    merged = {override.lstrip("+").partition("=")[0]: override for override in kept}
    for override in added:
        key = override.lstrip("+").partition("=")[0]
        plus = "+" if merged.get(key, "").startswith("+") else ""
        merged[key] = plus + override.lstrip("+") if plus else override
    return list(merged.values())


def _job(command: Command) -> Job:
    members = compose(command, Job)
    if len(members) != 1:
        raise ConfigError("a resume goes on with one run: give each key one value")
    return members[0].config


def _refuse_shorter(run_dir: RunDir, attempt: int, job: Job) -> None:
    """A run may become longer, never shorter; one that is done must become longer.

    Its unit stays: steps of masked tokens make another length, and another schedule.
    """
    unit = "tokens" if job.train.tokens is not None else "steps"
    length, before = getattr(job.train, unit), getattr(run_dir.job(attempt).train, unit)
    if before is None:
        other = "steps" if unit == "tokens" else "tokens"
        raise ConfigError(
            f"train.{unit}={length}: this run is measured in {other}, give train.{other}=…"
        )
    if length < before or (length == before and run_dir.outcome() is Outcome.done):
        raise ConfigError(
            f"train.{unit}={length}: the run is made for {before} {unit}, give more to go on"
        )
