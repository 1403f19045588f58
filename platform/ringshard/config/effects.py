"""Options that would have no effect are errors: whoever sets one expects it to do something."""

from collections.abc import Iterator
from dataclasses import fields

from ringshard.config.leaves import leaves
from ringshard.config.schema.debug import Debug, DebugMode
from ringshard.config.schema.hardware import Scheduler, Slurm
from ringshard.config.schema.job import Job
from ringshard.config.schema.optimizer import OPTIMIZERS
from ringshard.config.schema.parallelism import Parallelism
from ringshard.errors import ConfigError


def check_effects(job: Job) -> None:
    """Raises ConfigError for the first option that nothing would read."""
    for key, value, reason in _idle(job):
        raise ConfigError(f"{key}={value} would have no effect: {reason}")


def _idle(job: Job) -> Iterator[tuple[str, object, str]]:
    """(key, value, why nothing reads it and what would)."""
    if job.hardware.scheduler is Scheduler.local:
        for name, value in _set(job.hardware.slurm, Slurm()):
            yield f"hardware.slurm.{name}", value, "hardware.scheduler=slurm reads it"
    if job.debug.mode is not DebugMode.ranks:
        compare_rows = job.debug.compare_rows  # in any mode
        for name, value in _set(job.debug, Debug(job.debug.mode, compare_rows=compare_rows)):
            yield f"debug.{name}", value, "debug=ranks reads it"
    if job.parallelism.cp == 1:
        whole = "with parallelism.cp=1 each process has whole sequences, raise cp"
        for name, value in _set(job.parallelism, Parallelism()):
            if name.startswith("cp_"):
                yield f"parallelism.{name}", value, whole
        if job.debug.compare_rows:
            yield "debug.compare_rows", "true", whole
    if job.optimizer.args and job.optimizer.name in OPTIMIZERS:
        args = job.optimizer.args
        yield "optimizer.args", args, f"{job.optimizer.name} has fields, set optimizer.KEY"
    if job.checkpoint.every == 0 and not job.checkpoint.at_end and job.checkpoint.keep != 3:
        yield "checkpoint.keep", job.checkpoint.keep, "checkpoint.every=0 at_end=false saves none"


def _set(value: object, default: object) -> list[tuple[str, object]]:
    """The fields that differ from their defaults, as plain values."""
    plain, before = leaves(value), leaves(default)
    names = [field.name for field in fields(value)]  # type: ignore[arg-type]  # dataclasses only
    return [(name, plain[name]) for name in names if plain[name] != before[name]]
