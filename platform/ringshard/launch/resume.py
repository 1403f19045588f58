"""`resume=<run directory>`: the frozen job goes on, with what the new command line adds to it."""

from pathlib import Path
from typing import Any, cast

from ringshard.config.checks import check
from ringshard.config.complete import complete
from ringshard.config.compose import Command, compose
from ringshard.config.leaves import leaves, put, under
from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import build, plain
from ringshard.errors import ConfigError
from ringshard.launch import show
from ringshard.launch.files import read_json
from ringshard.launch.freeze import read_overrides
from ringshard.launch.identity import Run
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.start import run_all

# What may differ from the frozen job without changing the curve up to now.
MAY_CHANGE = (
    *("hardware", "parallelism", "checkpoint", "tracking", "launcher", "debug"),
    *("train.micro_batch", "train.steps", "train.tokens"),
    *("train.log_every", "train.eval_every", "train.eval_sequences", "train.detect_anomaly"),
)


def resume(path: Path, command: Command, module: str = "ringshard.train") -> int:
    """Runs the next attempt of a run and returns the exit code; raises ConfigError."""
    run_dir = RunDir(path)
    attempt = run_dir.last_attempt()
    if attempt == 0:
        raise ConfigError(f"resume={path}: the run has no attempt to go on from, start a new run")
    if run_dir.is_running():
        raise ConfigError(f"resume={path}: the run is running, wait for its end or stop it first")
    record = read_json(path / "run.json") or {}
    before = read_overrides(run_dir.attempt(attempt))
    job = _changed(run_dir.job(attempt), _delta(record, before, command))
    check(job)
    _refuse_shorter(run_dir, attempt, job)
    overrides = _merged(before, command.overrides)
    run = Run(job, overrides, record["signature"], record["sweep"], run_dir, again=True)
    if job.launcher.dry_run:
        show.dry_run([run])
        return 0
    return run_all(command, [run], module)


def _delta(record: dict[str, Any], before: list[str], command: Command) -> dict[str, Any]:
    """The keys that the new overrides change, as both command lines compose today."""
    config_name, options = record["config_name"], [*record["options"], *command.options]
    old = _job(Command(config_name, options, before))
    new = _job(Command(config_name, options, _merged(before, command.overrides)))
    return {key: value for key, value in leaves(new).items() if leaves(old).get(key) != value}


def _merged(before: list[str], added: list[str]) -> list[str]:
    """The old overrides with the values of the new; a key that came with a plus keeps it."""
    merged = {override.lstrip("+").partition("=")[0]: override for override in before}
    for override in added:
        key = override.lstrip("+").partition("=")[0]
        plus = "+" if merged.get(key, "").startswith("+") else ""
        merged[key] = plus + override.lstrip("+") if plus else override
    return list(merged.values())


def _job(command: Command) -> Job:
    members = compose(command, Job)
    if len(members) != 1:
        raise ConfigError("a resume goes on with one run: give each key one value")
    complete(members[0].config, Path.cwd())
    return members[0].config


def _changed(frozen: Job, delta: dict[str, Any]) -> Job:
    tree = plain(frozen)
    for key, value in delta.items():
        if not under(key, MAY_CHANGE):
            raise ConfigError(
                f"{key}={value} cannot change in a resumed run, which would no longer be the same"
                " run: leave it out, or start a new run"
            )
        put(tree, key, value)
    return cast(Job, build(Job, tree))


def _refuse_shorter(run_dir: RunDir, attempt: int, job: Job) -> None:
    """A run may become longer, never shorter; one that is done must become longer."""
    unit = "tokens" if job.train.tokens is not None else "steps"
    length, before = getattr(job.train, unit), getattr(run_dir.job(attempt).train, unit) or 0
    if length < before or (length == before and run_dir.outcome() is Outcome.done):
        raise ConfigError(
            f"train.{unit}={length}: the run has {before} {unit} already, give more to go on"
        )
