"""jobs/preflight.py: a look at a machine or an allocation, and what goes into its hardware file."""

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ringshard.config.compose import Command, Member
from ringshard.config.schema.hardware import Scheduler
from ringshard.config.schema.job import Job, Output
from ringshard.config.schema.preflight import Messages, PreflightJob
from ringshard.config.schema.tracking import Backend, Tracking
from ringshard.config.secrets import refuse_secrets
from ringshard.errors import ConfigError
from ringshard.launch.agent import explain, run_attempt
from ringshard.launch.freeze import write_attempt
from ringshard.launch.identity import stamped
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.show import short
from ringshard.launch.start import refuse_machine
from ringshard.tracking.store import check as check_address

MODULE = "ringshard.train.preflight"


def start(command: Command, members: list[Member[PreflightJob]]) -> int:
    """Looks at each member's hardware; 1 where something is wrong with one."""
    for member in members:
        _check(member.config)
    if command.dry_run:
        for member in members:
            print(f"{member.config.hardware.world_size} processes would be started")
        print("dry run: nothing was written")
        return 0
    for member in members:
        refuse_machine(Job(hardware=member.config.hardware))
    return max(_look(member) for member in members)


def _check(config: PreflightJob) -> None:
    if config.hardware.world_size < 2:
        raise ConfigError(
            f"hardware.processes_per_node={config.hardware.processes_per_node} has no link: give"
            " two processes or more"
        )
    if not config.sizes_mib or min(config.sizes_mib) <= 0 or config.seconds <= 0:
        raise ConfigError(f"sizes_mib={config.sizes_mib} and seconds must be above 0")
    read = Tracking(config.tracking.backend, config.tracking.uri, config.tracking.experiment)
    if config.tracking != read:
        raise ConfigError("tracking: a preflight reads backend, uri and experiment alone")
    if read.backend.ships:
        check_address(read.uri)
    refuse_secrets(Job(hardware=config.hardware))


def _look(member: Member[PreflightJob]) -> int:
    config = member.config
    root = Path(config.output.root).absolute()
    run = RunDir(root / "preflights" / stamped("preflight"))
    output, tracking = Output(str(root), "preflight"), Tracking(Backend.none)
    job = Job(hardware=config.hardware, output=output, tracking=tracking)
    options = Messages(config.sizes_mib, config.seconds)
    configs = {"job": job, "preflight": options, "tracking": config.tracking}
    outcome = _run(run, job, configs, member.overrides)
    if outcome is not Outcome.done:
        print(explain(run, run.last_attempt()), file=sys.stderr)
        return 1
    result = run.result(run.last_attempt())
    show(result)
    print(f"\nresult    {short(run.attempt(run.last_attempt()) / 'result.json')}")
    return 1 if result["problems"] else 0


def _run(run: RunDir, job: Job, configs: dict[str, Any], overrides: list[str]) -> Outcome | None:
    if job.hardware.scheduler is Scheduler.slurm:
        from ringshard.launch.slurm.one import run_one  # submitit takes a third of a second

        return run_one(run, job, MODULE, configs, overrides)
    with run.claimed():
        write_attempt(run.attempt(1), configs, job.user, overrides)
        return run_attempt(run, 1, job, MODULE).outcome


def show(result: dict[str, Any]) -> None:
    """The table of links, and the line that a hardware file may take over."""
    shown = Table(box=None, pad_edge=False)
    for title in ("link", "processes", "collective", "size", "time", "GB/s a process"):
        shown.add_column(title, justify="left" if title in ("link", "collective") else "right")
    for row in result["links"]:
        size, took = f"{row['mib']:g} MiB", f"{row['seconds'] * 1e6:,.0f} µs"
        rate = f"{row['gbytes_per_s']:.2f}"
        shown.add_row(row["link"], str(row["processes"]), row["collective"], size, took, rate)
    Console().print(shown)
    for name, text in result["facts"].items():
        print(f"{name:<14}{text}")
    for warning in result["warnings"]:
        print(f"warning   {warning}")
    for problem in result["problems"]:
        print(f"problem   {problem}")
    links = {row["link"]: row["gbytes_per_s"] for row in result["links"]}
    numbers = ", ".join(f"{link}: {rate:.2f}" for link, rate in links.items() if link != "all")
    print(f"\nfor the hardware file:  link_gbytes_per_s: {{{numbers}}}")
