"""What a search is to do, from its command line; all that can be refused is, before a file is
written."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ringshard.config.compose import Command
from ringshard.config.leaves import named, under
from ringshard.config.opened import opened
from ringshard.config.schema.job import Job
from ringshard.config.schema.launcher import Launcher
from ringshard.config.schema.search import Search
from ringshard.config.session import Session
from ringshard.config.space import Interval, Space, Value, split
from ringshard.errors import ConfigError
from ringshard.files import read_json, write_json
from ringshard.launch.identity import NOT_SIGNED, Run, hashed, place, root, signature
from ringshard.launch.prepare import check_models
from ringshard.launch.search.study import require_optuna
from ringshard.launch.start import check_all

_OF_SEARCHES = (
    *("search", "sweep"),
    *(f"launcher.{name}" for name in ("metric", "minimize", "max_parallel", "on_failure")),
)
"""What is the search's affair: a trial's own command line has none of it."""


@dataclass(frozen=True)
class Plan:
    """A search: its space, its policy, its place."""

    session: Session
    command: Command
    """Of a trial, without the values of its point."""
    space: Space
    policy: Job
    """The job of one point, with the options of the search."""
    name: str
    """Of the sweep."""

    @property
    def metric(self) -> str:
        """What the search looks at."""
        return _metric(self.policy)

    @property
    def folder(self) -> Path:
        """Where the runs lie."""
        return root(self.policy) / "sweeps" / self.name

    def run(self, point: Mapping[str, Value]) -> Run:
        """The run of a point; raises ConfigError where its job is not valid."""
        overrides = [*self.command.overrides, *self.space.overrides(point)]
        member = self.session.member(overrides)
        check_all([member])
        member.config.sweep.name, member.config.search = self.name, Search()
        (run,) = place(self.command, [member])
        return run

    def remember(self) -> None:
        """Writes down what the search is; raises ConfigError where its name is another one's."""
        told = _identity(self.command, self.space, self.policy)
        before = read_json(self.folder / "search.json") or told
        for key, value in told.items():
            if before.get(key) != value:
                raise ConfigError(
                    f"sweep.name={self.name} was begun with {key} {_spelled(before.get(key))}, now"
                    f" {_spelled(value)}: take another sweep.name"
                )
        write_json(self.folder / "search.json", told)


def plan(command: Command) -> Plan:
    """Raises ConfigError for a space of which an end or a choice is not valid beside the first
    values of the others."""
    command = replace(command, overrides=opened(command.overrides))
    session = Session(command)
    space = split(session.parse(command.overrides))
    _refuse_placement(space)
    policy = _policy(session, space)
    kept = [word for word in space.fixed if not under(named(word), _OF_SEARCHES)]
    trials = replace(command, overrides=kept, dry_run=False)
    _check_ends(session, kept, space)
    name = policy.sweep.name or hashed(_identity(command, space, policy))
    return Plan(session, trials, space, policy, name)


def _refuse_placement(space: Space) -> None:
    for key, text in space.texts.items():
        if under(named(key), NOT_SIGNED):
            raise ConfigError(
                f"{text}: {named(key)} does not change a run's result, give it one value"
            )


def _policy(session: Session, space: Space) -> Job:
    firsts = [f"{one.key}={one.probes[0]}" for one in space.dimensions]
    member = session.member([*space.fixed, *firsts])
    check_all([member])
    job = member.config
    require_optuna(job.search)
    if not job.tracking.backend.records:
        raise ConfigError("tracking=none records no result for a search: use tracking=jsonl")
    if job.launcher.retry is not Launcher().retry:
        raise ConfigError(
            f"launcher.retry={job.launcher.retry.name} would have no effect: a search tries other"
            " values instead"
        )
    return job


def _check_ends(session: Session, fixed: list[str], space: Space) -> None:
    firsts = {one.key: one.probes[0] for one in space.dimensions}
    points = [firsts | {one.key: probe} for one in space.dimensions for probe in one.probes]
    texts = ([f"{key}={text}" for key, text in point.items()] for point in points)
    members = [session.member([*fixed, *point]) for point in texts]
    check_all(members)
    check_models([member.config for member in members])


def _identity(command: Command, space: Space, policy: Job) -> dict[str, object]:
    """What may not differ between the commands of one search, nor between the files that they are
    composed from."""
    fixed = [word for word in space.fixed if not under(named(word), NOT_SIGNED)]
    return {
        "primary config": command.config_name,
        "space": sorted(space.texts.values()),
        "fixed": sorted(fixed),
        "metric": _metric(policy),
        "minimize": policy.launcher.minimize,
        "sampler": policy.search.sampler.name,
        "seed": policy.search.seed,
        "configuration hash": signature(policy),
    }


def _metric(policy: Job) -> str:
    return policy.launcher.metric or "val/loss"


def _spelled(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def described(space: Space) -> list[str]:
    """The space, a line for each dimension."""
    lines = []
    for one in space.dimensions:
        if isinstance(one, Interval):
            kind = "whole numbers" if one.integer else "numbers"
            scale = ", on a logarithmic scale" if one.log else ""
            lines.append(f"{one.key}  {kind} from {one.low} to {one.high}{scale}")
        else:
            lines.append(f"{one.key}  one of {', '.join(one.values)}")
    return lines
