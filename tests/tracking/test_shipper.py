"""Every spooled point is in MLflow exactly once, whatever dies, and the status is true."""

import errno
import json
import math
import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from tracking.shipped import expected, history, remote, ship
from typer.testing import CliRunner

from ringshard import cli
from ringshard.checkpoint import directory
from ringshard.checkpoint.manifest import Manifest
from ringshard.config.schema.reader import plain
from ringshard.errors import ConfigError
from ringshard.files import write_json
from ringshard.launch import tracker
from ringshard.launch.stop import StopRequests
from ringshard.launch.tracker import Tracker
from ringshard.report.mlflow_runs import find as find_in_mlflow
from ringshard.report.runs import find
from ringshard.tracking import delivery, shipper, store
from ringshard.tracking.batches import batches
from ringshard.tracking.delivery import Shipper
from ringshard.tracking.remote import RemoteRun
from ringshard.tracking.repeats import Repeats
from ringshard.tracking.spool import Spool, spools


def start(run: Any, attempt: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ringshard.tracking.shipper", str(run.path), str(attempt)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_points_parameters_files_and_status_arrive(run: Any) -> None:
    hooks = ("x={}", "y.api_key=secret", "z={token: 'secret'}")
    overrides = [f"+train.hooks.{hook}" for hook in hooks]
    run.attempt(1, *overrides, "optimizer.lr=0.002", "tracking.uri=http://me:secret@host")
    run.train(1, range(700))
    assert ship(run) == remote(run).info.status == "RUNNING"
    run.end(1, "done")
    assert ship(run) == "FINISHED"
    assert history(run) == expected(700)
    found = remote(run)
    assert (found.info.status, found.info.run_name) == ("FINISHED", "tiny-1")
    assert found.data.params["train.hooks.x"] == "{}"
    assert found.data.params["train.hooks.y.api_key"] == "[secret]"
    assert found.data.params["train.hooks.z"] == "{token: '[secret]'}"
    assert found.data.params["optimizer.name"] == "adamw"
    told = [*found.data.params.values(), *found.data.tags.values()]
    assert not any("secret" in value.replace("[secret]", "") for value in told)
    client = store.connect(run.job.tracking.uri)
    files = client.list_artifacts(found.info.run_id, "attempts/1")
    assert [file.path for file in files] == ["attempts/1/job.yaml", "attempts/1/overrides.json"]
    assert found.data.tags["ringshard.seed"] == "1"


def test_a_run_without_a_point_still_has_its_true_status(run: Any) -> None:
    run.attempt(1)
    run.end(1, "failed")
    assert ship(run) == remote(run).info.status == "FAILED"


def test_a_torn_file_of_an_attempt_keeps_its_status_from_mlflow(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run.attempt(1)
    run.train(1, range(5))
    (run.path / "attempts/1/started.json").write_text('{"time": 17')
    run.end(1, "done")
    assert ship(run) == remote(run).info.status == "FINISHED"
    assert history(run) == expected(5)
    assert "started.json is damaged" in capsys.readouterr().out


def test_points_that_mlflow_refused_are_sent_again(run: Any) -> None:
    run.attempt(1)
    run.train(1, range(5))
    with closing(sqlite3.connect(run.job.tracking.uri.removeprefix("sqlite:///"))) as database:
        refuse = "BEFORE INSERT ON metrics BEGIN SELECT RAISE(ABORT, 'refused'); END"
        database.execute(f"CREATE TRIGGER refuse {refuse}")
        with pytest.raises(Exception, match="refused"):
            ship(run)
        database.execute("DROP TRIGGER refuse")
    ship(run)
    assert history(run) == expected(5)


def test_points_reach_mlflow_that_the_disk_may_lose(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.attempt(1)
    run.train(1, range(5))
    done: list[object] = []
    log = RemoteRun.log

    def logged(remote: RemoteRun, points: Any, warnings: Any) -> None:
        done.append(len(points))
        log(remote, points, warnings)

    monkeypatch.setattr(RemoteRun, "log", logged)
    monkeypatch.setattr(delivery, "sync", lambda path: done.append(path.name))
    ship(run)
    assert done == ["spool-1.0-rank0.jsonl", 10 + 1]  # and the number of the attempt


def test_a_resumed_run_is_the_same_run_without_doubled_steps(run: Any) -> None:
    run.attempt(1)
    run.train(1, range(57))
    run.end(1, "killed")
    ship(run)
    run.job.parallelism.dp_shard = 4
    run.attempt(2)
    run.train(2, range(50, 80))
    ship(run, attempt=2)
    assert remote(run).info.status == "RUNNING"
    run.end(2, "done")
    ship(run, attempt=2)
    assert history(run) == expected(80)
    found = remote(run)
    assert found.info.status == "FINISHED"
    assert found.data.params["parallelism.dp_shard"] == "-1"
    assert found.data.tags["ringshard.attempt-2.parallelism.dp_shard"] == "4"


def test_a_shipper_killed_in_mid_run_leaves_nothing_out_and_nothing_twice(run: Any) -> None:
    run.attempt(1)
    run.train(1, range(1500))
    first = start(run)
    ledger = run.path / "track" / "shipped.json"
    await_points(run)
    run.train(1, range(1500, 1800))
    first.kill()
    first.communicate()
    ledger.write_text(ledger.read_text().replace('"offsets": {', '"offsets_": {'))  # torn
    second = start(run)
    run.train(1, range(1800, 2000))
    run.end(1, "done")
    assert second.communicate()[1] == ""
    assert second.returncode == 0
    assert history(run) == expected(2000)
    assert remote(run).info.status == "FINISHED"


def test_files_arrive_twice_or_with_secrets_or_hold_up_points(run: Any, tmp_path: Path) -> None:
    folder = run.attempt(1, "tracking.uri=http://me:hush12345@host")
    (folder / "code.diff").write_text("+TOKEN = 'hf_abcdefghijklmnop'\n+api_key: 'hush12345'\n+x\n")
    (folder / "environment.json").write_text('{"SLURM_JOB_ID": "12"}')
    run.train(1, range(3))
    store_of_files = tmp_path / "mlartifacts"
    store_of_files.write_text("a file in the way")
    ship(run)
    assert history(run) == expected(3)
    store_of_files.unlink()
    ship(run)
    (kept,) = store_of_files.glob("*/artifacts/attempts/1")
    assert (kept / "code.diff").read_text() == "+TOKEN = '[secret]'\n+api_key: '[secret]'\n+x\n"
    assert json.loads((kept / "environment.json").read_text()) == {"SLURM_JOB_ID": "12"}
    assert not any("hush12345" in file.read_text() for file in kept.iterdir())
    for file in kept.iterdir():
        file.unlink()
    ship(run)
    assert not list(kept.iterdir())


def test_a_store_that_refuses_files_keeps_a_run_from_its_end_or_its_models(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.attempt(1)
    run.train(1, range(3))
    checkpoint = directory.of_step(run.path / "checkpoints", 2)
    checkpoint.mkdir(parents=True)
    Manifest({}).write(checkpoint)
    (tmp_path / "mlartifacts").write_text("a file in the way")
    run.end(1, "done")
    tracking = run.job.tracking
    shipping = Shipper(run.path, 1, tracking.uri, tracking.experiment)
    assert shipper.follow(shipping, patience_s=0.1)
    assert remote(run).info.status == "FINISHED"
    assert history(run) == expected(3)
    client = store.connect(tracking.uri)
    (model,) = client.search_logged_models([remote(run).info.experiment_id])
    assert model.name == checkpoint.name
    printed = capsys.readouterr().out
    assert printed.count("mlartifacts") == 1 and "MLflow refuses: files (" in printed
    done = shipper.sync(run.path, 1, tracking.uri, tracking.experiment)
    assert "mlartifacts" in done.refused[0]
    (tmp_path / "mlartifacts").unlink()
    assert shipper.sync(run.path, 1, tracking.uri, tracking.experiment).refused == ()
    assert list((tmp_path / "mlartifacts").glob("*/artifacts/attempts/1/job.yaml"))


def test_one_look_that_the_disk_refuses_ends_tracking_for_the_rest_of_the_run(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run.attempt(1)
    run.train(1, range(3))
    run.end(1, "done")
    tracking = run.job.tracking
    shipping = Shipper(run.path, 1, tracking.uri, tracking.experiment)
    looks = iter([OSError(errno.ESTALE, "Stale file handle")])

    def look(*asked: Any) -> Any:
        for refused in looks:
            raise refused
        return Shipper.standing(shipping, *asked)

    monkeypatch.setattr(shipping, "standing", look)
    assert shipper.follow(shipping, patience_s=30)
    assert "Stale file handle" in capsys.readouterr().err
    assert remote(run).info.status == "FINISHED"
    assert history(run) == expected(3)


def test_the_job_of_a_run_that_was_synced_in_the_queue_lacks_its_data_for_ever(
    run: Any, tmp_path: Path
) -> None:
    folder = run.attempt(1)
    (folder / "started.json").rename(folder / "later.json")
    ship(run)
    assert not (tmp_path / "mlartifacts").exists()
    run.job.data.digest = "0123"
    (folder / "job.yaml").write_text(yaml.safe_dump(plain(run.job)))
    (folder / "later.json").rename(folder / "started.json")
    ship(run)
    (kept,) = (tmp_path / "mlartifacts").glob("*/artifacts/attempts/1/job.yaml")
    assert yaml.safe_load(kept.read_text())["data"]["digest"] == "0123"


def test_a_retry_moves_the_end_of_a_killed_run_and_doubles_where_its_time_went(run: Any) -> None:
    folder = run.attempt(1)
    run.train(1, range(3))
    run.die()
    waited = {"submission": "nowhere", "index": None, "time": 1767323000.0}
    (folder / "submitted.json").write_text(json.dumps(waited))
    for trial in range(2):
        with (folder / "shipper.log").open("a") as log:
            log.write("tracking: attempt 1 to reach MLflow failed\n")
        (run.path / "track" / "shipped.json").unlink(missing_ok=True)
        os.utime(folder / "shipper.log", (2_000_000_000 + trial,) * 2)
        assert ship(run) == "KILLED"
    assert remote(run).info.end_time < 2e12
    goodput = {key for key in remote(run).data.metrics if not key.startswith("train/")}
    assert goodput and all(len(history(run, key)) == 1 for key in goodput)


def test_a_run_deleted_in_mlflow_is_sent_again(run: Any) -> None:
    run.attempt(1)
    run.train(1, range(3))
    ship(run)
    store.connect(run.job.tracking.uri).delete_run(remote(run).info.run_id)
    ship(run)
    assert history(run) == expected(3)


def in_mlflow(run: Any) -> dict[str, Any]:
    """All points of the one run, its files, its models and when it began."""
    client, there = store.connect(run.job.tracking.uri), remote(run)
    files = client.list_artifacts(there.info.run_id, "attempts/1")
    models = client.search_logged_models([there.info.experiment_id])
    return {
        "points": {key: history(run, key) for key in there.data.metrics},
        "files": [file.path for file in files],
        "models": [model.model_id for model in models],
        "began": there.info.start_time,
    }


@pytest.mark.parametrize("is_copy", [False, True], ids=["moved", "copied"])
@pytest.mark.parametrize("status", ["FINISHED", "KILLED"])
def test_a_run_that_lies_elsewhere_is_another_run_or_doubles_points(
    run: Any, status: str, is_copy: bool, tmp_path: Path
) -> None:
    """Below another parent; a copy has new times of files and does not know what was sent."""
    waited = {"submission": "nowhere", "index": None, "time": 1767323000.0}
    (run.attempt(1) / "submitted.json").write_text(json.dumps(waited))
    run.train(1, range(57))
    checkpoint = directory.of_step(run.path / "checkpoints", 57)
    checkpoint.mkdir(parents=True)
    Manifest({}).write(checkpoint)
    if status == "FINISHED":
        run.end(1, "done")
    run.die()
    assert synced(run.path) == status
    before, ended = in_mlflow(run), remote(run).info.end_time
    there = tmp_path / "elsewhere" / run.path.name
    if is_copy:
        without = shutil.ignore_patterns("shipped.json")
        shutil.copytree(run.path, there, ignore=without, copy_function=shutil.copy)
    else:
        there.parent.mkdir()
        run.path.rename(there)
    assert synced(there) == status
    assert in_mlflow(run) == before
    assert history(run) == expected(57) and history(run, "goodput/fraction")
    assert remote(run).info.end_time == ended


def synced(run: Path) -> str:
    """The status that the command tells."""
    told = CliRunner().invoke(cli.app, ["track", "sync", str(run)])
    assert told.exit_code == 0, told.output
    return told.output.split()[-1]


def test_what_is_not_finite_arrives_as_nan_once(run: Any) -> None:
    run.attempt(1)
    spool = Spool(run.path, 1)
    for step, value in enumerate([math.nan, math.inf, -math.inf]):
        spool.log(step, {"train/loss": value})
    ship(run)
    (run.path / "track" / "shipped.json").unlink()
    ship(run)
    values = history(run)
    assert [step for step, _ in values] == [0, 1, 2]
    assert all(math.isnan(value) for _, value in values)


def test_the_memory_of_shipping_grows_with_the_run(tmp_path: Path) -> None:
    """A hundred thousand points, of which a request takes a thousand."""
    spool = Spool(tmp_path, 1)
    for step in range(10_000):
        spool.log(step, {f"train/metric_{number}": step / 3 for number in range(10)})
    (file,) = spools(tmp_path)
    tracemalloc.start()
    sizes = [len(b.points) for b in batches(file, 0, 1000, Repeats(file, [], lambda *_: True))]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert max(sizes) == 1000 and sum(sizes) == 100_000 + 1  # and the number of the attempt
    assert peak < 2 * 2**20, f"{peak:,} bytes"


def test_keys_that_mlflow_refuses_are_renamed(run: Any) -> None:
    run.attempt(1)
    Spool(run.path, 1).log(0, {"train/loss/my corpus [é]//../x": 1.0, "a" * 300: 2.0})
    ship(run)
    assert set(remote(run).data.metrics) == {"train/loss/x", "a" * 250, "run/attempt"}


def test_lost_lines_are_told(run: Any) -> None:
    run.attempt(1)
    run.train(1, range(3))
    path = run.path / "track" / "spool-1.0-rank0.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"step":1', b'"step":7'))
    ship(run)
    assert remote(run).data.tags["ringshard.incomplete"] == "1 lines lost"
    assert history(run) == [(0, 1.0), (2, 1 / 3)]


def test_lines_of_a_disk_that_stays_full_are_missed_by_nobody(run: Any) -> None:
    """Their number is on no disk but in the result of the run, which it can write again."""
    run.attempt(1)
    run.train(1, range(1, 6))
    spool = Spool(run.path, 1)
    room = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, room[1]))
    for step in range(6, 9):
        spool.log(step, {"train/loss": 1.0})
    spool.close()
    resource.setrlimit(resource.RLIMIT_FSIZE, room)
    ship(run)
    assert "ringshard.incomplete" not in remote(run).data.tags
    write_json(run.path / "attempts/1/result.json", {"outcome": "finished", "step": 8})
    run.end(1, "done")
    assert ship(run) == "FINISHED"
    assert remote(run).data.tags.get("ringshard.incomplete") == "3 lines lost"
    (there,) = find_in_mlflow(run.job.tracking.uri, ["ringshard"])
    (here,) = find([run.path])
    assert there.state == here.state == "done, incomplete"
    assert here.faults == ["3 steps before an end are not in its record: the disk stayed full"]
    shown = CliRunner().invoke(cli.app, ["runs", "show", str(run.path)]).output
    assert "3 steps before an end are not in its record" in shown


@pytest.fixture
def black_hole() -> Iterator[int]:
    """The port of a server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_dead_server_crashes_nothing_and_the_end_is_immediate(
    run_at: Callable[[str], Any],
) -> None:
    run = run_at("http://127.0.0.1:9")
    run.attempt(1)
    run.train(1, range(3))
    process = start(run)
    assert process.stderr is not None
    assert "attempt 1 to reach MLflow failed" in process.stderr.readline()
    assert "attempt 2 to reach MLflow failed" in process.stderr.readline()
    assert not ended_at_once(process)


def test_a_server_that_never_answers_does_not_delay_the_end(
    run_at: Callable[[str], Any], black_hole: int
) -> None:
    run = run_at(f"http://127.0.0.1:{black_hole}")
    run.attempt(1)
    process = start(run)
    assert process.stderr is not None
    assert "timed out" in process.stderr.readline()
    assert not ended_at_once(process)


def ended_at_once(process: Any) -> bool:
    """Whether all had arrived when the agent, which has no patience, ended it."""
    ended = Tracker(process).end(0.0, StopRequests())
    assert process.returncode == -signal.SIGKILL
    return ended


def test_a_run_whose_processes_were_all_told_to_stop_goes_on_in_mlflow(run: Any) -> None:
    """Slurm sends SIGTERM to the whole job, before its agent can tell how it ended."""
    run.job.tracking.system_every_s = 0
    folder = run.attempt(1)
    run.train(1, range(3))
    tracking = tracker.start(run.job, run.path, 1)
    assert tracking.shipper
    await_points(run)
    tracking.shipper.send_signal(signal.SIGTERM)
    run.end(1, "killed", why="cancelled")
    assert tracking.end(30.0, StopRequests()), (folder / "shipper.log").read_text()
    assert remote(run).data.tags["ringshard.state"] == "killed: cancelled"
    assert remote(run).info.status == "KILLED"


def await_points(run: Any) -> None:
    ledger = run.path / "track" / "shipped.json"
    while not (ledger.exists() and json.loads(ledger.read_text())["offsets"]):
        time.sleep(0.01)


def test_points_that_waited_for_a_database_are_synced_later(run: Any) -> None:
    run.attempt(1)
    run.train(1, range(5))
    run.end(1, "done")
    tracking = run.job.tracking
    done = shipper.sync(run.path, 1, tracking.uri, tracking.experiment)
    assert done == ("FINISHED", 0, ())
    assert history(run) == expected(5)


def test_a_run_that_nobody_ended_and_nobody_holds_was_killed(run: Any) -> None:
    run.attempt(1)
    run.train(1, range(3))
    assert ship(run) == remote(run).info.status == "RUNNING"
    run.die()
    assert ship(run) == remote(run).info.status == "KILLED"
    last = (run.path / "track" / "spool-1.0-rank0.jsonl").stat().st_mtime
    assert last <= remote(run).info.end_time / 1000 + 0.001 < time.time()
    run.attempt(2)
    assert ship(run, attempt=2) == remote(run).info.status == "RUNNING"


AGENT = """
import subprocess, sys, time
from pathlib import Path
from ringshard.launch.rundir import RunDir
with RunDir(Path(sys.argv[1])).claimed():
    subprocess.Popen([sys.executable, "-m", "ringshard.tracking.shipper", sys.argv[1], "1"])
    time.sleep(600)
"""


def test_a_run_whose_agent_is_killed_is_killed_and_has_its_last_points(run: Any) -> None:
    run.attempt(1)
    run.die()
    run.train(1, range(3))
    agent = subprocess.Popen([sys.executable, "-c", AGENT, str(run.path)])
    await_points(run)
    assert remote(run).info.status == "RUNNING"
    run.train(1, range(3, 6))
    agent.kill()
    agent.wait()
    while remote(run).info.status == "RUNNING":
        time.sleep(0.05)
    assert remote(run).info.status == "KILLED"
    assert history(run) == expected(6)


def test_a_sync_of_what_is_being_shipped_is_refused(run: Any) -> None:
    run.attempt(1)
    with shipper._lock(run.path, 0), pytest.raises(ConfigError, match="being shipped right now"):
        shipper.sync(run.path, 1, run.job.tracking.uri, "ringshard")


def test_a_sync_without_its_server_is_told_in_one_sentence(run_at: Callable[[str], Any]) -> None:
    run = run_at("http://127.0.0.1:9")
    run.attempt(1)
    with pytest.raises(ConfigError, match=r"could not be shipped to http://127.0.0.1:9 \(.*later"):
        shipper.sync(run.path, 1, run.job.tracking.uri, "ringshard")
