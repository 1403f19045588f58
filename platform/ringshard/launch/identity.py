"""Which run a configuration is: signature, sweep, folder."""

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ringshard.config.compose import Command, Member
from ringshard.config.leaves import leaves, under
from ringshard.config.schema.debug import DebugMode
from ringshard.config.schema.job import Job
from ringshard.errors import ConfigError
from ringshard.launch.rundir import RunDir

# Where, how watched and how called a run is does not make it another run. The device does.
NOT_SIGNED = (
    *("launcher", "tracking", "output", "sweep", "search", "debug", "hardware"),
    "user.path",
)
NOT_SIGNED_DATA = ("data.cache", "data.prepared", "data.digest")


@dataclass(frozen=True)
class Run:
    """A member of a sweep, or a single run, and its place on disk."""

    job: Job
    overrides: list[str]
    signature: str
    sweep: str | None
    dir: RunDir
    after: int | None = None
    """The attempt that it goes on from, even if that one is done; null: it is no resume."""


def signature(job: Job) -> str:
    """Hash of what decides the curve: the resolved config without placement and bookkeeping."""
    signed = {
        key: value
        for key, value in leaves(job).items()
        if not under(key, NOT_SIGNED + NOT_SIGNED_DATA) or key == "hardware.device"
    }
    return hashed(signed)


def place(command: Command, members: list[Member[Job]]) -> list[Run]:
    """The run of every member; raises ConfigError where two members are the same run."""
    sweep = members[0].config.sweep.name or (_sweep(command, members) if members[1:] else None)
    runs = [_run(member, sweep) for member in members]
    seen: dict[Path, Run] = {}
    for run in runs:
        twin = seen.setdefault(run.dir.path, run)
        if twin is not run:
            raise ConfigError(
                f"the members [{' '.join(twin.overrides)}] and [{' '.join(run.overrides)}] are one"
                " and the same run (placement does not count): start them without a sweep"
            )
    return runs


def _run(member: Member[Job], sweep: str | None) -> Run:
    job = member.config
    signed = signature(job)
    if sweep is None:
        path = root(job) / "runs" / stamped(job.output.name)
    else:
        path = root(job) / "sweeps" / sweep / f"{job.output.name}-{signed}"
    return Run(job, member.overrides, signed, sweep, RunDir(path))


def root(job: Job) -> Path:
    """Where the runs of a kind lie: those that only look for a mistake are apart."""
    train = job.train
    looks = job.debug.mode is not DebugMode.off or train.overfit_batch or train.detect_anomaly
    return Path(job.output.root) / ("debug" if looks or job.output.debug else "")


def stamped(name: str) -> str:
    """A name that no folder has yet."""
    return f"{name}-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def named_by_command(command: Command) -> str:
    """A name of a sweep that the same command line has again."""
    return hashed([command.config_name, sorted(command.overrides)])


def _sweep(command: Command, members: list[Member[Job]]) -> str:
    """A hash that stays when values are added to a sweep: what is fixed, and which keys vary."""
    every = [set(member.overrides) for member in members]
    common = set.intersection(*every)
    varied = {override.partition("=")[0] for override in set.union(*every) - common}
    fixed = [o for o in common if not under(o.lstrip("+~").partition("=")[0], NOT_SIGNED)]
    return hashed([command.config_name, sorted(fixed), sorted(varied)])


def hashed(value: Any) -> str:
    """Twelve characters for a plain value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
