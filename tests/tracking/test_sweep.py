"""A sweep is one run in MLflow above those of its members, whose status is theirs together."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from tracking.conftest import RunFolder
from tracking.shipped import expected, ship
from typer import Exit

from ringshard import cli
from ringshard.files import write_json
from ringshard.launch import manifest
from ringshard.launch.attended import Attendance, attended
from ringshard.launch.rundir import RunDir
from ringshard.launch.slurm.queue import Queued
from ringshard.launch.state import PRUNED
from ringshard.report.runs import Run
from ringshard.tracking import store
from ringshard.tracking import sweep as sweeps
from ringshard.tracking.reap import Judged, reap


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


def remote_metrics(member: Any) -> dict[str, float]:
    (found,) = [run for run in runs_in(member) if run.info.run_name == member.path.name]
    return dict(found.data.metrics)


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


def test_eight_members_break_a_database_that_was_not_there(tmp_path: Path) -> None:
    """Each ships in a process of its own, and the first one makes the file."""
    uri = f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"
    members = [RunFolder(tmp_path / "lr" / f"tiny-{seed}", uri, "lr") for seed in range(8)]
    for member in members:
        member.attempt(1)
        member.train(1, range(20))
    context = multiprocessing.get_context("fork")
    shipping = [context.Process(target=ship, args=[member]) for member in members]
    for process in shipping:
        process.start()
    for process in shipping:
        process.join()
    assert [process.exitcode for process in shipping] == [0] * 8
    above = parent(members[0]).info.run_id
    client = store.connect(uri)
    children = [run.info.run_id for run in runs_in(members[0]) if run.info.run_id != above]
    found = [client.get_metric_history(run_id, "train/loss") for run_id in children]
    curves = [sorted((point.step, point.value) for point in points) for points in found]
    assert curves == [expected(20)] * 8


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
    each = [remote_metrics(one) for one in members]
    wall = {key for key in each[0] if key.startswith("goodput/") and key.endswith("_s")}
    together = parent(members[0]).data.metrics
    assert wall and all(
        together[key] == pytest.approx(sum(one[key] for one in each)) for key in wall
    )


def test_a_sweep_of_this_machine_is_finished_for_a_moment_between_its_members(
    member: Callable[[int], RunFolder],
) -> None:
    first = member(0)
    with attended(first.path.parent), attended(first.path.parent):  # two commands
        end(first, "done")
        ship(first)
        assert parent(first).info.status == "RUNNING"
    assert parent(first).info.status == "FINISHED"


def test_the_end_of_a_sweep_is_not_told_while_a_member_is_being_shipped(
    member: Callable[[int], RunFolder], capfd: pytest.CaptureFixture[str]
) -> None:
    first = member(0)
    with Attendance() as sweeps:
        for _ in range(2):  # batches
            sweeps.begin(first.path.parent)
        end(first, "done")
        ship(first)
        lock = FileLock(first.path / "track" / "lock")
        lock.acquire()
    assert parent(first).info.status == "FINISHED"
    assert capfd.readouterr().err == ""
    lock.release()


def test_a_sweep_is_finished_though_a_member_never_began(
    member: Callable[[int], RunFolder],
) -> None:
    first = member(0)
    noted = {first.path.name: {"attempts": 0}, "tiny-1": {"attempts": 0}}
    write_json(first.path.parent / manifest.NAME, {"members": noted})
    end(first, "done")
    ship(first)
    assert parent(first).info.status == "KILLED"
    assert parent(first).data.tags["ringshard.state"] == "1 done, 1 new"


class Slow:
    """A client that somebody else overtakes between a look at the sweep and what is sent of it."""

    def __init__(self, client: Any, meanwhile: Callable[[], None]) -> None:
        self._client, self._meanwhile = client, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_run(self, run_id: str) -> Any:
        self._meanwhile()
        return self._client.get_run(run_id)


def test_what_was_true_of_a_sweep_first_is_told_last(member: Callable[[int], RunFolder]) -> None:
    members = [member(seed) for seed in range(2)]
    for one in members:
        ship(one)
    end(members[0], "done")
    with ThreadPoolExecutor() as pool:

        def last_one_ends() -> None:
            end(members[1], "done")
            wait([pool.submit(ship, members[1])], timeout=1.5)

        client = Slow(store.connect(members[0].job.tracking.uri), last_one_ends)
        above = parent(members[0]).info.run_id
        sweeps.tell(client, above, members[0].path.parent, lambda: None)
    assert parent(members[0]).info.status == "FINISHED"


def test_a_last_member_takes_itself_for_one_at_work_before_its_marker_is_written(
    member: Callable[[int], RunFolder],
) -> None:
    last = member(0)
    ship(last)
    (last.path / "attempts/1/exit.json").write_text('{"outcome": "done"}')
    assert ship(last) == parent(last).info.status == "FINISHED"


def test_a_member_that_was_cancelled_in_the_queue_keeps_its_sweep_running_when_reaped(
    member: Callable[[int], RunFolder],
) -> None:
    members = [member(seed) for seed in range(2)]
    members[1].submit(1, "12")
    members[1].die()
    end(members[0], "done")
    ship(members[0])
    assert parent(members[0]).info.status == "RUNNING"
    runs = [Run(RunDir(one.path)) for one in members]
    jobs = {"12": Queued("12", "PENDING", "None", "tiny")}
    assert list(reap(runs[:1], [], lambda: jobs)) == []
    told = Judged(True, "KILLED (1 done, 1 interrupted)")
    assert list(reap(runs[:1], [], dict)) == [(members[0].path.parent, told)]
    assert parent(members[0]).info.status == "KILLED"
    assert list(reap(runs[:1], [], dict)) == []


def test_a_member_that_told_nobody_of_its_end_keeps_its_sweep_running_when_synced(
    member: Callable[[int], RunFolder],
) -> None:
    members = [member(seed) for seed in range(2)]
    end(members[0], "done")
    ship(members[0])
    members[1].die()
    assert parent(members[0]).info.status == "RUNNING"
    with pytest.raises(Exit) as ended:
        cli.sync([members[0].path])
    assert ended.value.exit_code == 0
    assert parent(members[0]).info.status == "KILLED"
