"""Which configurations are the same run."""

import re
from datetime import datetime, tzinfo
from pathlib import Path

import pytest

from ringshard.config.complete import complete
from ringshard.config.compose import Command, compose
from ringshard.config.schema.job import Job
from ringshard.launch import identity
from ringshard.launch.identity import place, signature


def _job(*overrides: str) -> Job:
    (member,) = compose(Command("train", [], list(overrides)), Job)
    complete(member.config, Path("/somewhere"))
    return member.config


def _sweep(*overrides: str) -> str | None:
    command = Command("train", [], list(overrides))
    members = compose(command, Job)
    for member in members:
        complete(member.config, Path("/somewhere"))
    return place(command, members)[0].sweep


def test_placement_and_bookkeeping_are_not_signed() -> None:
    plain = signature(_job())
    same = ("output.root=/x", "tracking=none", "hardware.threads_per_process=4", "user.path=/y")
    assert signature(_job(*same, "launcher.dry_run=true", "sweep.name=z")) == plain
    for other in ("optimizer.lr=1e-2", "train.seed=2", "data.seq_len=128", "hardware.device=cuda"):
        assert signature(_job(other)) != plain, other


def test_a_sweep_keeps_its_name_when_values_are_added() -> None:
    first = _sweep("optimizer.lr=1e-3,1e-4", "train.steps=50")
    assert first == _sweep("train.steps=50", "optimizer.lr=1e-3,1e-4,1e-5", "tracking=none")
    assert first != _sweep("optimizer.lr=1e-3,1e-4", "train.steps=60")
    assert _sweep("optimizer.lr=1e-3") is None


@pytest.mark.parametrize(
    "looking",
    [
        "debug=on",
        "debug=ranks",
        "experiment=smoke",
        "experiment=overfit_batch",
        "train.detect_anomaly=true",
    ],
)
def test_runs_that_look_for_a_mistake_lie_apart(looking: str) -> None:
    command = Command("train", [], [looking])
    members = compose(command, Job)
    complete(members[0].config, Path("/somewhere"))
    (run,) = place(command, members)
    assert run.dir.path.parent == Path("/somewhere/outputs/debug/runs")


def _place(*overrides: str) -> Path:
    command = Command("train", [], list(overrides))
    members = compose(command, Job)
    for member in members:
        complete(member.config, Path("/somewhere"))
    return place(command, members)[0].dir.path


def test_two_runs_of_the_same_second_share_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    class Noon(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Noon":
            return cls(2030, 1, 1, 12, tzinfo=tz)

    monkeypatch.setattr(identity, "datetime", Noon)
    first, second = _place(), _place()
    assert first != second and first.name.startswith("tiny-20300101-120000-")
    assert second.name.startswith("tiny-20300101-120000-")


def test_a_folder_is_called_by_all_that_a_member_was_given() -> None:
    """Its name would be too long, or several folders."""
    many = [f"+hardware.env.A{number}=/a/b" for number in range(30)]
    path = _place("optimizer.lr=1e-3,1e-4", *many)
    assert path.parents[1] == Path("/somewhere/outputs/sweeps")
    assert re.fullmatch(r"tiny-[0-9a-f]{12}", path.name)
