"""A sweep is one run in MLflow above those of its members, whose status is theirs together."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tracking.conftest import RunFolder
from tracking.shipped import ship

from ringshard.launch.state import PRUNED
from ringshard.tracking import store


@pytest.fixture
def member(tmp_path: Path, run: RunFolder) -> Callable[[int], RunFolder]:
    """A member of a sweep by its seed."""

    def make(seed: int) -> RunFolder:
        folder = tmp_path / "sweeps" / "lr" / f"tiny-{seed}"
        made = RunFolder(folder, run.job.tracking.uri, "lr")
        made.job.train.seed = seed
        made.attempt(1, f"train.seed={seed}", "tracking.experiment=x")
        return made

    return make


def runs_in(member: Any) -> list[Any]:
    client = store.connect(member.job.tracking.uri)
    home = client.get_experiment_by_name("ringshard").experiment_id
    return list(client.search_runs([home]))


def parent(member: Any) -> Any:
    found = [run for run in runs_in(member) if run.info.run_name == "lr"]
    assert len(found) == 1
    return found[0]


def test_members_that_start_at_once_have_several_parents_or_no_flat_tags(
    member: Callable[[int], RunFolder],
) -> None:
    members = [member(seed) for seed in range(4)]
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(ship, members)) == ["RUNNING"] * 4
    above = parent(members[0]).info.run_id
    children = [run for run in runs_in(members[0]) if run.info.run_id != above]
    tags = [run.data.tags for run in children]
    assert {tag["mlflow.parentRunId"] for tag in tags} == {above}
    assert {tag["ringshard.sweep"] for tag in tags} == {"lr"}
    assert sorted(tag["ringshard.seed"] for tag in tags) == ["0", "1", "2", "3"]
    assert sorted(tag["ringshard.overrides"] for tag in tags) == [
        f"train.seed={seed}" for seed in range(4)
    ]
    assert len({tag["ringshard.config_hash"] for tag in tags}) == 1  # seeds can be averaged


def end(member: RunFolder, outcome: str) -> None:
    if outcome == "pruned":
        member.end(1, "killed", why=f"{PRUNED} by its search")
    else:
        member.end(1, outcome)


@pytest.mark.parametrize(
    ("outcomes", "status", "state"),
    [
        (["done", "done"], "FINISHED", "2 done"),
        (["done", "failed"], "FAILED", "1 done, 1 failed"),
        (["done", "killed"], "KILLED", "1 done, 1 killed"),
        (["done", "pruned"], "FINISHED", "1 done, 1 pruned"),
    ],
)
def test_a_sweep_ends_before_its_members_or_otherwise(
    member: Callable[[int], RunFolder], outcomes: list[str], status: str, state: str
) -> None:
    members = [member(seed) for seed in range(2)]
    ship(members[0])
    end(members[0], outcomes[0])
    ship(members[0])
    assert parent(members[0]).info.status == "RUNNING"
    end(members[1], outcomes[1])
    ship(members[1])
    assert parent(members[0]).info.status == status
    assert parent(members[0]).data.tags["ringshard.state"] == state
