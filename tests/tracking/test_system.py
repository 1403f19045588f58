"""Each node notes how busy it is beside the ranks, in a spool of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tracking.shipped import history, ship

from ringshard.tracking import system
from ringshard.tracking.gpus import visible
from ringshard.tracking.spool import Record, read_spool


def start(run: Any, node: int = 0) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ringshard.tracking.system", str(run.path), "1", str(node)]
    return subprocess.Popen(command)


def samples(run: Any, node: int, at_least: int) -> list[Record]:
    path = run.path / "track" / f"spool-1.0-node-{node}.jsonl"
    found: list[Record] = []
    until = time.monotonic() + 60
    while len(found) < at_least:
        assert time.monotonic() < until, f"{path} has {len(found)} samples"
        time.sleep(0.05)
        found = [r for r, _ in read_spool(path) if r] if path.exists() else []
    return found


def test_nodes_share_a_spool_or_their_samples_do_not_reach_mlflow(run: Any) -> None:
    run.job.tracking.system_every_s = 0.2
    run.attempt(1)
    samplers = [start(run, node) for node in (0, 1)]
    found = [samples(run, node, 2) for node in (0, 1)]
    run.end(1, "done")
    assert [sampler.wait(30) for sampler in samplers] == [0, 0]
    ship(run)
    for node in (0, 1):
        metrics = found[node][-1].metrics
        assert 0 <= metrics[f"system/node-{node}/cpu_percent"] <= 100
        assert metrics[f"system/node-{node}/disk_free_gib"] > 0
        key = f"system/node-{node}/memory_gib"
        noted = sorted((record.step, record.metrics[key]) for record in samples(run, node, 2))
        assert history(run, key) == noted


def test_the_memory_of_the_jobs_own_processes_is_not_seen(tmp_path: Path) -> None:
    machine = system.Node(tmp_path, os.getpid())
    before = machine.sample()["job_memory_gib"]
    hungry = "import sys; a = bytes(range(256)) * 2**20; print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hungry], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout and child.stdout.readline()
        assert machine.sample()["job_memory_gib"] - before > 0.25
        child.communicate()


AGENT = """
import sys, time
from pathlib import Path
from ringshard.launch import tracker
from ringshard.launch.rundir import RunDir
run = RunDir(Path(sys.argv[1]))
tracker.start(run.job(1), run.path, 1, node=1)
print(1, flush=True)
time.sleep(600)
"""


def test_a_sampler_outlives_its_agent(run: Any) -> None:
    run.job.tracking.system_every_s = 0.2
    run.attempt(1)
    agent = subprocess.Popen([sys.executable, "-c", AGENT, str(run.path)], stdout=subprocess.PIPE)
    samples(run, 1, 1)
    (sampler,) = psutil.Process(agent.pid).children()
    assert "ringshard.tracking.system" in sampler.cmdline()
    agent.kill()
    agent.communicate()
    psutil.wait_procs([sampler], timeout=30)
    assert not sampler.is_running() or sampler.status() == psutil.STATUS_ZOMBIE


RESUMED = """
import sys, time
from pathlib import Path
import psutil
from ringshard.launch import tracker
from ringshard.launch.orphans import adopt_orphans, kill_descendants
from ringshard.launch.rundir import RunDir
run, count = RunDir(Path(sys.argv[1])), int(sys.argv[2])
adopt_orphans()
for attempt in range(1, count + 1):
    tracker.start(run.job(1), run.path, attempt, node=1)
    spool = run.path / "track" / f"spool-{attempt}.0-node-1.jsonl"
    while not (spool.exists() and spool.stat().st_size):
        time.sleep(0.01)
    processes = psutil.Process().children(recursive=True)
    print(*(p.num_threads() for p in processes if p.status() != psutil.STATUS_ZOMBIE), flush=True)
    kill_descendants(spared=[])
"""


def test_a_run_resumed_often_has_as_many_samplers_or_counts_samples_twice(run: Any) -> None:
    run.job.tracking.system_every_s = 0.05
    for attempt in range(1, 21):
        run.attempt(attempt)
    command = [sys.executable, "-c", RESUMED, str(run.path), "20"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n" * 20  # one process with one thread each time
    ship(run, 20)
    key = "system/node-1/memory_gib"
    spooled = [
        (record.step, record.metrics[key])
        for spool in (run.path / "track").glob("spool-*.0-node-1.jsonl")
        for record, _ in read_spool(spool)
        if record
    ]
    assert len(spooled) >= 20 and history(run, key) == sorted(spooled)


def test_a_full_disk_ends_the_sampler(run: Any) -> None:
    run.job.tracking.system_every_s = 0.05
    run.attempt(1)
    code = (
        "import resource, runpy, sys; sys.argv[1:] = [sys.argv[1], '1', '0'];"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100));"
        "runpy.run_module('ringshard.tracking.system', run_name='__main__')"
    )
    sampler = subprocess.Popen([sys.executable, "-c", code, str(run.path)])
    file = run.path / "track" / "spool-1.0-node-0.jsonl"
    while not file.exists():
        time.sleep(0.05)
    time.sleep(0.5)
    assert sampler.poll() is None
    sampler.send_signal(signal.SIGTERM)
    sampler.wait()


@pytest.mark.parametrize(
    ("listed", "processes", "devices"),
    [
        (None, 2, ["0", "1"]),
        ("4,5,6,7", 2, ["4", "5"]),
        ("GPU-1a2b,MIG-3c4d", 8, ["GPU-1a2b", "MIG-3c4d"]),
        ("", 8, []),
        ("1,-1,2", 8, ["1"]),
    ],
)
def test_devices_of_other_jobs_are_watched(
    listed: str | None, processes: int, devices: list[str]
) -> None:
    environment = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    assert visible(environment, processes) == devices


def test_a_node_without_gpus_crashes_the_sampler(run_at: Callable[[str], Any], capfd: Any) -> None:
    from ringshard.tracking.gpus import Gpus

    assert Gpus({}, 2).sample() == {}
    assert "GPUs are not watched" in capfd.readouterr().err
