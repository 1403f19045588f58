"""Runs evaluations one after another; all are checked before anything is written."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ringshard import child
from ringshard.config.checks import check
from ringshard.config.complete import complete
from ringshard.config.compose import Command, Member
from ringshard.config.effects import refuse_filled_in
from ringshard.config.evaluation import check_averages, check_options, job_of, options_of
from ringshard.config.schema.evaluation import EvaluateJob, EvaluationOptions
from ringshard.config.schema.hardware import Scheduler
from ringshard.config.schema.job import Job
from ringshard.errors import ConfigError
from ringshard.launch.agent import Ended, explain, run_attempt
from ringshard.launch.evaluation import show
from ringshard.launch.evaluation.source import checkpoint, source
from ringshard.launch.freeze import write_attempt
from ringshard.launch.identity import root, stamped
from ringshard.launch.prepare import check_models, prepare_all
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.start import refuse_machine

MODULE = "ringshard.train.evaluation"


@dataclass(frozen=True)
class Planned:
    """An evaluation and its place on disk."""

    job: Job
    options: EvaluationOptions
    overrides: list[str]
    dir: RunDir


def start(command: Command, members: list[Member[EvaluateJob]]) -> int:
    """jobs/evaluate.py: evaluates each member, prints the results, returns the exit code."""
    todo = [_plan(member) for member in members]
    if command.dry_run:
        check_models([planned.job for planned in todo], trains=False)
        for number, planned in enumerate(todo, 1):
            show.begun(planned.job, planned.options, f"[{number}/{len(todo)}] ")
        print("dry run: nothing was written")
        return 0
    for planned in todo:
        refuse_machine(planned.job)
    _prepare([planned.job for planned in todo])
    for planned in todo:
        _refuse_prompts(planned)
    done = list(_run_each(todo))
    if len(todo) > 1:
        show.table([(planned.overrides, planned.dir) for planned in todo[: len(done)]])
    return max(ended.code for ended in done)


def _plan(member: Member[EvaluateJob]) -> Planned:
    """All that can be told without reading data; raises ConfigError."""
    config = member.config
    check_options(config)
    refuse_filled_in(config.data, config.user, member.overrides)
    options = options_of(config, checkpoint(config.of))
    trained = source(config.of)
    check_averages(config.averaged, trained)
    job = job_of(config, trained)
    complete(job, Path.cwd())
    check(job)
    folder = root(job) / "evaluations" / stamped(job.output.name)
    return Planned(job, options, member.overrides, RunDir(folder))


def _prepare(jobs: list[Job]) -> None:
    """Data that lie ready are taken as they are, even where their corpus is gone."""
    gone = [job for job in jobs if not _is_prepared(job)]
    frozen = [job.data.digest for job in gone]
    prepare_all(gone, trains=False)
    for job, digest in zip(gone, frozen, strict=True):
        if digest not in (None, job.data.digest):
            raise ConfigError(
                "the corpora of this run have changed, and the data it was trained on are gone: "
                "name data=… to evaluate it on others"
            )


def _is_prepared(job: Job) -> bool:
    folder = job.data.prepared
    return folder is not None and (Path(folder) / "metadata.json").is_file()


def _refuse_prompts(planned: Planned) -> None:
    """Raises ConfigError for a prompt that the tokenizer can't encode."""
    if planned.options.prompts:
        folder = str(planned.job.data.prepared)
        child.ask("ringshard.data.encode", folder, about=planned.options.prompts)


def _run_each(todo: list[Planned]) -> Iterator[Ended]:
    """One after another; a failed one does not keep the others from running, Ctrl-C does."""
    for number, planned in enumerate(todo, 1):
        show.begun(planned.job, planned.options, f"[{number}/{len(todo)}] " if todo[1:] else "")
        ended = _run(planned)
        if ended.outcome is Outcome.done:
            show.ended(planned.dir, planned.options)
        elif ended.outcome is Outcome.failed:
            print(explain(planned.dir, 1), file=sys.stderr, flush=True)
        yield ended
        if ended.stopped:
            return


def _run(planned: Planned) -> Ended:
    configs = {"job": planned.job, "evaluation": planned.options}
    if planned.job.hardware.scheduler is Scheduler.slurm:
        from ringshard.launch.slurm.one import run_one  # submitit takes a third of a second

        outcome = run_one(planned.dir, planned.job, MODULE, configs, planned.overrides)
        return Ended(outcome or Outcome.failed, int(outcome is not Outcome.done))
    with planned.dir.claimed():
        write_attempt(planned.dir.attempt(1), configs, planned.job.user, planned.overrides)
        return run_attempt(planned.dir, 1, planned.job, MODULE)
