"""Sends runs to Slurm: all that can be refused is, before anything is written or submitted."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ringshard.config.compose import Command
from ringshard.config.schema.job import Job
from ringshard.errors import ConfigError
from ringshard.launch import show
from ringshard.launch.code import Code, code_of
from ringshard.launch.environment import unused
from ringshard.launch.freeze import freeze
from ringshard.launch.identity import Run
from ringshard.launch.rundir import RunDir
from ringshard.launch.slurm import queue
from ringshard.launch.slurm.batches import Planned, after, batches
from ringshard.launch.slurm.data import Preparing, preparation, prepared_by
from ringshard.launch.slurm.request import BLOCK
from ringshard.launch.slurm.submission import Submission, submit
from ringshard.launch.snapshot import Frozen, snapshot
from ringshard.launch.state import State, ask_queue, job_id, state


def require_cluster() -> None:
    """Raises ConfigError on a machine that no Slurm answers, or whose jobs would not start."""
    try:
        queue.read_queue()
    except queue.SlurmError as error:
        raise ConfigError(
            f"hardware.scheduler=slurm: no Slurm answers here ({error}): submit on a machine of the"
            " cluster, or use hardware=cpu_local or gpu_local"
        ) from error
    if subprocess.run([*shlex.split(BLOCK), "true"], capture_output=True).returncode:
        raise ConfigError(
            f"hardware.scheduler=slurm: `{BLOCK}` does not work here, and no job would start: put"
            " coreutils 8.31 or newer first in PATH, here and on the nodes"
        )


def tell_unused(job: Job) -> None:
    """Says on stderr what the shell asks of sbatch in vain."""
    for sentence in unused(job.hardware.slurm):
        print(sentence, file=sys.stderr, flush=True)


def dependencies(run: Run) -> list[str]:
    """What has to be over before: launcher.after; raises ConfigError where it never will be."""
    after = run.job.launcher.after
    if after is None:
        return []
    before = RunDir(Path(after))
    if not before.record.is_file():
        raise ConfigError(f"launcher.after={after} is no run: give the folder of one")
    stands = state(before, ask_queue())
    if stands is State.done:
        return []
    submitted = job_id(before)
    if not stands.lives or submitted is None:
        alone = "launcher.after=null"
        if run.after is not None:  # perhaps of `ringshard runs retry`, which takes no override
            alone = f"{show.typed('ringshard')} runs resume {show.short(run.dir.path)} {alone}"
        raise ConfigError(
            f"launcher.after={after} is {stands.name} and not in the queue: resume it first, or go"
            f" on without it: {alone}"
        )
    return [f"afterok:{submitted}"]


def plan(runs: list[Run], module: str) -> list[Planned]:
    """The next attempt of each run."""
    return [Planned(run.job, run.dir, run.dir.last_attempt() + 1, module) for run in runs]


def scripts(
    runs: list[Run], missing: list[Job], module: str = "ringshard.train"
) -> Iterator[tuple[str, str]]:
    """What sbatch would be given, each script with whose it is; nothing is written.

    missing: jobs whose data a job of their own would prepare first. For the number of a job that
    there is not yet stands its name.
    """
    launcher, root = runs[0].job.launcher, Path(runs[0].job.output.root)
    source = snapshot(launcher.snapshot, runs[0].job.user, root, write=False).source
    prepares = {id(one): preparation(one, root, source) for one in missing}
    for one in {one.request.name: one for one in prepares.values()}.values():
        yield one.request.script(1), "the job that prepares the data"
    jobs = {key: Preparing(one.request.name, "") for key, one in prepares.items()}
    before: Submission | None = None
    waits_for = _waits_for(runs, jobs)
    for one, _ in _submissions(plan(runs, module), waits_for, source, dependencies(runs[0])):
        chained = after(one, before.request.name) if before and launcher.max_parallel else one
        yield chained.request.script(len(one.tasks)), ", ".join(task.run_dir for task in one.runs)
        before = one


def _waits_for(runs: list[Run], jobs: dict[int, Preparing]) -> dict[Path, Preparing]:
    """Which job prepares the data of each run whose own job is among those."""
    return {run.dir.path: jobs[id(run.job)] for run in runs if id(run.job) in jobs}


def _submissions(
    planned: list[Planned],
    data: dict[Path, Preparing],
    source: Path | None,
    follows: list[str],
) -> Iterator[tuple[Submission, Preparing | None]]:
    """What is submitted, each with the job that prepares its data."""
    for waits_for in dict.fromkeys(data.get(run.dir.path) for run in planned):
        alike = [run for run in planned if data.get(run.dir.path) == waits_for]
        needs = follows + ([f"afterok:{waits_for.job_id}"] if waits_for else [])
        for submission in batches(alike, source, needs, _max_array()):
            yield submission, waits_for


def submit_all(
    command: Command, runs: list[Run], missing: list[Job], module: str
) -> Iterator[tuple[str, list[Run]]]:
    """Freezes runs and submits them; the id of each job as soon as there is one, and its runs. To
    be called within `submitting`.

    missing: jobs whose data are to be prepared first, by jobs of their own. Raises ConfigError
    where sbatch refuses; what it has taken before that stays.
    """
    job = runs[0].job
    root = Path(job.output.root)
    follows = dependencies(runs[0])
    code, found = snapshot(job.launcher.snapshot, job.user, root), code_of(job.user)
    by_path = {str(run.dir.path): _frozen(run, code) for run in runs}
    jobs = {id(one): prepared_by(one, root, code.source) for one in missing}
    planned, last = plan(list(by_path.values()), module), None
    data = _waits_for(runs, jobs)
    for submission, waits_for in _submissions(planned, data, code.source, follows):
        if last and job.launcher.max_parallel:  # else each array would run that many
            submission = after(submission, last)
        members = [by_path[task.run_dir] for task in submission.runs]
        last = _submit(command, root, submission, members, waits_for, found)
        yield last, members


def _submit(
    command: Command,
    root: Path,
    submission: Submission,
    members: list[Run],
    data: Preparing | None,
    code: Code,
) -> str:
    known = [run.dir.record.exists() for run in members]

    def write() -> None:
        for index, run in enumerate(members):
            run.dir.path.mkdir(parents=True, exist_ok=True)
            told = submission.submitted(index) | ({"data": data.folder} if data else {})
            freeze(run, command, told, code)

    def take_back() -> None:
        for run, kept in zip(members, known, strict=True):
            run.dir.discard_attempt(whole=not kept)

    return submit(root, submission, write, take_back)


def _frozen(run: Run, code: Frozen) -> Run:
    """The run with its user's modules as they are now."""
    if code.user is None:
        return run
    user = replace(run.job.user, path=str(code.user))
    return replace(run, job=replace(run.job, user=user))


def _max_array() -> int:
    """MaxArraySize is the largest index and one; Slurm's own default is 1001, and 0 says that there
    are no arrays: each run is a job then."""
    return max(1, queue.number("MaxArraySize", 1001))


def announce_end(taken: dict[str, list[Run]]) -> None:
    """What was submitted, the runs by the id of their job, and the commands with which it is
    followed, cancelled and compared."""
    ids, runs = list(taken), [run for members in taken.values() for run in members]
    folder = runs[0].dir.path if len(runs) == 1 else runs[0].dir.path.parent
    ours, here = show.typed("ringshard"), show.short(folder)
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    log = here if len(runs) == 1 else show.short(runs[0].dir.path)
    lines = {
        "submitted": f"{count} as job{'s' if len(ids) > 1 else ''} {', '.join(ids)}",
        "folder": here,
        "state": f"{ours} runs list {here}",
        "log": f"{ours} runs logs -f {log}",
        "cancel": f"{ours} runs cancel {here}",
        "compare": f"{ours} compare {here}",
    }
    if runs[0].job.tracking.ships_to_file:
        lines["curves"] = f"{ours} track sync {here}"
    print("\n".join(f"{name:<10} {text}" for name, text in lines.items()), flush=True)
