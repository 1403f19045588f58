"""A server that is away, in any of the ways there are: MLflow ends up with what was spooled.

The trainer never waits for it, since it never speaks to it; how long runs took is printed (-s).
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest
from parity.test_command_line import ROOT, SMALL
from runs import curve
from tracking.conftest import RunFolder
from tracking.server import Gate, Server
from tracking.shipped import expected, history, remote, ship
from tracking.test_shipper import AGENT

from ringshard.errors import ConfigError
from ringshard.report.mlflow_runs import find as find_in_mlflow
from ringshard.tracking import delivery, shipper
from ringshard.tracking.spool import Spool, read_spool

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def gate(server: Server) -> Iterator[Gate]:
    gate = Gate(server.port)
    yield gate
    gate.close()


@pytest.fixture
def away(tmp_path: Path, gate: Gate) -> RunFolder:
    """A run, with an experiment of its own, whose server can't be reached yet."""
    run = RunFolder(tmp_path / "runs" / "tiny-1", gate.uri)
    run.job.tracking.experiment = tmp_path.name
    run.job.tracking.flush_timeout_s = 1.0
    return run


def start(run: RunFolder) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "ringshard.tracking.shipper", str(run.path), "1"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def until_said(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"the shipper ended without: {text}")


def shipped_in_vain(run: RunFolder, words: str, outcome: str) -> int:
    """Exit code of the shipper of a run of 100 steps, which ends once the shipper has said so."""
    run.attempt(1)
    run.train(1, range(100))
    process = start(run)
    until_said(process, words)
    run.end(1, outcome)
    process.communicate()
    return process.returncode


def until_some_arrived(run: RunFolder) -> None:
    """Waits until MLflow has points of the run."""
    ledger = run.path / "track" / "shipped.json"
    while not (ledger.exists() and '-rank0.jsonl": ' in ledger.read_text()):
        time.sleep(0.01)


def track(command: str, run: RunFolder) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-m", "ringshard.cli", "track", command, str(run.path)]
    return subprocess.run(line, capture_output=True, text=True)


def sync(run: RunFolder) -> str:
    """What the command says, in this process: importing MLflow takes seconds."""
    try:
        tracking = run.job.tracking
        return shipper.sync(run.path, 1, tracking.uri, tracking.experiment).status
    except ConfigError as error:
        return str(error)


def assert_whole(run: RunFolder, steps: int, status: str = "FINISHED") -> None:
    assert history(run) == expected(steps)
    assert remote(run).info.status == status


def test_points_of_before_the_server_was_up_are_lost(away: RunFolder, gate: Gate) -> None:
    away.attempt(1)
    away.train(1, range(50))
    process = start(away)
    until_said(process, "attempt 1 to reach MLflow failed")
    away.train(1, range(50, 100))
    gate.open()
    away.end(1, "done")
    process.communicate()
    assert process.returncode == 0
    assert_whole(away, 100)


def test_a_server_killed_in_mid_run_costs_or_doubles_points(
    away: RunFolder, gate: Gate, server: Server
) -> None:
    gate.open()
    away.attempt(1)
    away.train(1, range(3000))
    process = start(away)
    until_some_arrived(away)
    server.kill()
    until_said(process, "failed")
    away.train(1, range(3000, 3500))
    away.end(1, "done")
    process.communicate()
    assert process.returncode == 1
    assert "could not be shipped" in sync(away)
    server.start()
    assert sync(away) == "FINISHED"
    assert_whole(away, 3500)


def test_a_server_that_swallows_all_delays_the_end_or_costs_points(
    away: RunFolder, gate: Gate
) -> None:
    gate.hole()
    assert shipped_in_vain(away, "timed out", "done") == 1
    gate.open()
    assert sync(away) == "FINISHED"
    assert_whole(away, 100)


def test_a_refused_hostname_is_a_failed_connection_or_costs_points(
    away: RunFolder, gate: Gate
) -> None:
    gate.open(host=b"tracker01:5000")
    assert shipped_in_vain(away, "--allowed-hosts", "failed") == 1
    assert "--allowed-hosts" in track("sync", away).stderr
    gate.open()
    synced = track("sync", away)
    assert synced.returncode == 0
    assert synced.stdout.splitlines() == [
        f"{away.path}: all points are in {gate.uri}, status FAILED"
    ]
    assert_whole(away, 100, "FAILED")


def preflight(folder: Path, uri: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "jobs/preflight.py"), "sizes_mib=[0.001]", "seconds=0.01"]
    command += [f"tracking.uri={uri}", f"tracking.experiment={folder.name}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_a_server_that_takes_no_runs_passes_a_preflight_or_stops_it(
    tmp_path: Path, gate: Gate
) -> None:
    refused = {}
    refused["Connection refused"] = preflight(tmp_path, gate.uri)
    gate.open(host=b"tracker01:5000")
    refused["start it with --allowed-hosts"] = preflight(tmp_path, gate.uri)
    for words, done in refused.items():
        assert done.returncode == 0, done.stderr
        assert f"warning   tracking: {gate.uri} takes no runs" in done.stdout
        assert words in done.stdout
    gate.open()
    done = preflight(tmp_path, gate.uri)
    assert (done.returncode, "warning" in done.stdout) == (0, False), done.stdout
    assert f"{gate.uri} takes runs" in done.stdout


def test_a_server_that_answers_late_or_no_more_is_a_traceback(away: RunFolder, gate: Gate) -> None:
    """Shipping gives up after five seconds, and tries again; whoever compares waits."""
    gate.open()
    away.attempt(1)
    away.train(1, range(100))
    away.end(1, "done")
    ship(away)
    (run,) = find_in_mlflow(gate.uri, [away.job.tracking.experiment])
    gate.delay_s = 6
    assert len(run.curves["train/loss"]) == 100
    gate.close()
    with pytest.raises(ConfigError, match=r"gives no points of train/lr .*: try later"):
        run.curves["train/lr"]


def test_a_locked_database_costs_or_doubles_points(
    away: RunFolder, gate: Gate, server: Server
) -> None:
    """What the server writes after the client has given up is the same rows."""
    gate.open()
    away.attempt(1)
    ship(away)
    with closing(connect(server.database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        away.train(1, range(100))
        process = start(away)
        until_said(process, "failed")
        other.execute("ROLLBACK")
    away.end(1, "done")
    process.communicate()
    assert sync(away) == "FINISHED"
    assert_whole(away, 100)


class Clock:
    """Time that passes when somebody waits; the server comes back after an hour of it."""

    def __init__(self, gate: Gate, run: RunFolder) -> None:
        self.now, self.attempts = 0.0, 0
        self._gate, self._run = gate, run
        self._is_up = False

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1767323040 + self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > 3600 and not self._is_up:
            self._is_up = True
            self._gate.open()
            self._run.train(1, range(100, 200))
        if self.now > 3800 and not (self._run.path / "DONE").exists():
            self._run.end(1, "done")


def test_a_server_that_is_back_after_an_hour_is_not_asked_again(
    away: RunFolder, gate: Gate, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    clock = Clock(gate, away)
    monkeypatch.setattr(shipper, "time", clock)
    away.attempt(1)
    away.train(1, range(100))
    tracking = away.job.tracking
    shipping = delivery.Shipper(away.path, 1, tracking.uri, tracking.experiment)
    assert shipper.follow(shipping, tracking.flush_timeout_s)
    assert_whole(away, 200)
    asked = capsys.readouterr().err.count("to reach MLflow failed")
    assert 60 < asked < 150  # once a minute: neither forgotten nor besieged


def test_an_agent_killed_while_the_server_is_away_leaves_a_run_that_goes_on_for_ever(
    away: RunFolder, gate: Gate
) -> None:
    gate.open()
    away.attempt(1)
    away.die()
    away.train(1, range(50))
    agent = subprocess.Popen([sys.executable, "-c", AGENT, str(away.path)])
    until_some_arrived(away)
    gate.close()
    away.train(1, range(50, 100))
    agent.kill()
    agent.wait()
    while "being shipped" in sync(away):  # the shipper has outlived its agent
        time.sleep(0.2)
    gate.open()
    assert remote(away).info.status == "RUNNING"
    assert "KILLED (interrupted)" in track("reap", away).stdout
    assert_whole(away, 100, "KILLED")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    if os.getuid() != 0:
        pytest.skip("mounting a disk needs root")
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_stops_training_or_its_losses_are_not_told(
    away: RunFolder, gate: Gate, small_disk: Path
) -> None:
    gate.open()
    away.attempt(1)
    (away.path / "track").symlink_to(small_disk, target_is_directory=True)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 40960)
    spool = Spool(away.path, 1)
    for step in range(1000):
        spool.log(step, {"train/loss": 1 / (step + 1), "train/lr": 1e-3})
    refused = spool.dropped
    assert 0 < refused < 1000
    with pytest.raises(OSError, match="No space left"):  # nor can be noted what has arrived
        ship(away)
    ballast.unlink()
    for step in range(1000, 1010):
        spool.log(step, {"train/loss": 1 / (step + 1), "train/lr": 1e-3})
    spool.close()
    away.end(1, "done")
    ship(away)
    kept = [(r.step, r.metrics["train/loss"]) for r, _ in read_spool(spool.path) if r and r.metrics]
    assert len(kept) == 1010 - refused
    assert history(away) == kept
    damaged = sum(record is None for record, _ in read_spool(spool.path))
    assert remote(away).data.tags["ringshard.incomplete"] == f"{refused + damaged} lines lost"


@pytest.mark.parametrize("server_is", ["there", "half a second away", "swallowing all"])
def test_a_whole_run_fails_or_is_incomplete_without_its_server(
    tmp_path: Path, gate: Gate, server_is: str
) -> None:
    if server_is == "swallowing all":
        gate.hole()
    else:
        gate.open(delay_s=0.5 if server_is == "half a second away" else 0.0)
    command = [sys.executable, str(ROOT / "jobs/train.py"), *SMALL[6:]]
    command.remove("tracking=jsonl")
    command += ["data=text_files", "data.path=text.txt", "data.seq_len=64", "data.split=position"]
    command += ["train.steps=40", "train.log_every=1", "checkpoint.at_end=false"]
    command += [f"tracking.uri={gate.uri}", f"tracking.experiment={tmp_path.name}"]
    command += ["tracking.flush_timeout_s=1", "tracking.system_every_s=1"]
    (tmp_path / "text.txt").write_text("she sells sea shells by the sea shore. " * 100)
    begun = time.monotonic()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "outputs/runs").iterdir()
    steps = curve(path, "perf/step_s")
    print(
        f"{server_is}: {time.monotonic() - begun:.1f} s in all, median step {median(steps):.4f} s"
    )
    gate.open()
    line = [sys.executable, "-m", "ringshard.cli", "track", "sync", str(path)]
    assert subprocess.run(line, capture_output=True).returncode == 0
    run = RunFolder.of(path, gate.uri, tmp_path.name)
    for metric in ("train/loss", "perf/step_s", "system/node-0/cpu_percent"):
        assert dict(history(run, metric)) == curve(path, metric)
    assert len(history(run)) == 40
    assert remote(run).info.status == "FINISHED"


def median(values: dict[int, float]) -> float:
    return sorted(values.values())[len(values) // 2]
