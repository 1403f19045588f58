"""What a command would do: the dry run."""

import shlex

from ringshard.config.leaves import leaves
from ringshard.config.schema.hardware import Scheduler
from ringshard.launch import torchrun
from ringshard.launch.identity import Run
from ringshard.launch.prepare import check_models, prepare_runs
from ringshard.launch.state import ask_queue, split


def show_plan(runs: list[Run], module: str = "ringshard.train") -> None:
    """Name, folder, command or script, and differing keys of every member; nothing is written.

    Raises ConfigError for what is wrong with a model; data are looked at where a job would prepare
    them.
    """
    check_models([run.job for run in runs])
    differing = _differing(runs)
    todo, rest = split(runs, ask_queue())
    skipped = {run.dir.path: stands for run, stands in rest}
    for index, run in enumerate(runs):
        hardware, attempt = run.job.hardware, run.dir.last_attempt() + 1
        processes = f"{hardware.nodes} × {hardware.processes_per_node} processes"
        print(f"[{index + 1}/{len(runs)}] {run.job.output.name}  {run.signature}")
        print(f"  folder   {run.dir.path}")
        print(f"  where    {hardware.scheduler.name}, {processes}, {hardware.device.name}")
        if run.dir.path in skipped:
            print(f"  skipped  {skipped[run.dir.path].name}")
        elif hardware.scheduler is Scheduler.local:
            command = torchrun.command(run.job, run.dir.path, attempt, module)
            print(f"  command  {shlex.join(command)}")
        for key in differing:
            print(f"  {key}={leaves(run.job).get(key)}")
    if todo and runs[0].job.hardware.scheduler is Scheduler.slurm:
        _show_scripts(todo, module)
    print("dry run: nothing was written")


def _show_scripts(runs: list[Run], module: str) -> None:
    from ringshard.launch.slurm.start import scripts  # submitit takes a third of a second

    missing = prepare_runs(runs, ready_only=True)
    for script, whose in scripts(runs, missing, module):
        print(f"\nsbatch script of {whose}:\n\n{script}")
    if missing:
        print("(afterok:data-… stands for the number of the job with that name)")


def _differing(runs: list[Run]) -> list[str]:
    every = [leaves(run.job) for run in runs]
    keys = sorted(set().union(*every))
    return [key for key in keys if any(one.get(key) != every[0].get(key) for one in every)]
