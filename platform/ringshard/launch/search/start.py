"""`search=tpe`, `search=random`: begins a search, or goes on with it."""

from ringshard.config.compose import Command
from ringshard.config.schema.hardware import Scheduler
from ringshard.launch import manifest
from ringshard.launch.attended import attended
from ringshard.launch.plan import show_plan
from ringshard.launch.search import show
from ringshard.launch.search.loop import Loop
from ringshard.launch.search.places import Here, OnSlurm, Place
from ringshard.launch.search.plan import Plan, described, plan
from ringshard.launch.search.study import Study, claimed
from ringshard.launch.show import short
from ringshard.launch.slurm.watch import synchronize
from ringshard.launch.start import refuse_machine
from ringshard.launch.stop import StopRequests, stop_requests


def search(command: Command, module: str = "ringshard.train") -> int:
    """Searches to the end; 0 where a trial has a result, 1 where none has, 128+n if stopped.

    Raises ConfigError for a space or an option that is not valid, before anything is written.
    """
    planned = plan(command)
    if command.dry_run or planned.policy.launcher.dry_run:
        return _show(planned, module)
    refuse_machine(planned.policy)
    with claimed(planned.folder):
        planned.remember()
        policy = planned.policy
        study = Study(planned.folder, planned.space, policy.search, policy.launcher.minimize)
        on_slurm = policy.hardware.scheduler is Scheduler.slurm
        place: Place = (OnSlurm if on_slurm else Here)(planned.command, module)
        print(f"search {short(planned.folder)}", flush=True)
        loop = Loop(planned, study, place)
        with attended(planned.folder):
            with stop_requests() as stop:
                loop.run(stop)
            if loop.runs:
                manifest.write(loop.runs)
        if not (stop or place.waits_for_runs):
            synchronize(loop.runs)
        return _ended(planned, study, place, stop)


def _ended(planned: Plan, study: Study, place: Place, stop: StopRequests) -> int:
    trials = study.trials()
    show.ended(planned, trials)
    if stop:
        goes_on = "stopped" if place.waits_for_runs else "left, its runs go on"
        print(f"{goes_on}: the same command goes on with the search", flush=True)
        return 128 + stop.first
    return 0 if any(trial.value is not None for trial in trials) else 1


def _show(planned: Plan, module: str) -> int:
    """What would be tried first; nothing is written."""
    policy = planned.policy
    study = Study(None, planned.space, policy.search)
    print("\n".join(described(planned.space)))
    print(f"{policy.search.trials} trials by {policy.search.sampler.name}, of which the first:")
    first = [study.ask() for _ in range(policy.launcher.max_parallel or 1)]
    runs = [planned.run(trial.point) for trial in first]
    show_plan(list({run.dir.path: run for run in runs}.values()), module)
    return 0
