"""debug=on and debug=ranks: what a debugger needs of the launcher."""

import json
import socket
import subprocess
import time
from pathlib import Path

import psutil
from launch.commandline import begin, run, run_dirs

from ringshard import child
from ringshard.config.complete import complete
from ringshard.config.compose import Command, compose
from ringshard.config.schema.job import Job
from ringshard.launch.freeze import write_attempt

THREADS = "hardware.threads_per_process=3"


def test_debug_on_is_one_process_with_a_free_stdin(tmp_path: Path) -> None:
    process = begin(tmp_path, "debug=on", "+hardware.env.STANDIN='ask:0'", THREADS, stdin=-1)
    out, err = process.communicate("hello\n", timeout=60)
    assert process.returncode == 0, err
    assert "you said hello" in out and "rank 0 of 1" in out
    (run_dir,) = run_dirs(tmp_path)
    assert run_dir.parent.parent.name == "debug" and (run_dir / "DONE").exists()
    started = json.loads((run_dir / "attempts/1/started.json").read_text())
    environment = json.loads((run_dir / "attempts/1/seen-0.json").read_text())
    expected = {"pid": started["pid"], "OMP_NUM_THREADS": "3"}  # no stale RANK, no MASTER_PORT
    assert environment == expected
    assert not (run_dir / "attempts/1/torchrun.log").exists()


def test_debug_on_lets_an_exception_through_to_the_debugger(tmp_path: Path) -> None:
    ended = run(tmp_path, "debug=on", "+hardware.env.STANDIN='raise:0'")
    assert ended.returncode == 1
    assert ended.stderr.rstrip().splitlines()[-1] == "RuntimeError: the lamp went out"
    assert (run_dirs(tmp_path)[0] / "FAILED").exists()


def test_a_rank_waits_on_a_port_until_a_debugger_connects(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    overrides = ["debug=ranks", "debug.rank=1", f"debug.port={port}"]
    (member,) = compose(Command("train", [], overrides), Job)
    complete(member.config, tmp_path)
    write_attempt(tmp_path / "attempts/1", {"job": member.config}, member.config.user, overrides)
    rank = subprocess.Popen(
        child.command("ringshard.train", str(tmp_path), "1"),
        env={**child.environment(), "RANK": "1", "WORLD_SIZE": "2"},
    )
    try:
        _connect(port, rank)
        assert rank.poll() is None
    finally:
        for process in [*psutil.Process(rank.pid).children(recursive=True), rank]:
            process.kill()
        rank.wait()


def _connect(port: int, rank: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and rank.poll() is None:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"nobody waits on port {port}: {rank.poll()}")


def test_debug_ranks_starts_two(tmp_path: Path) -> None:
    ended = run(tmp_path, "debug=ranks", "debug.rank=1", "train.detect_anomaly=false")
    assert ended.returncode == 0 and "rank 0 of 2" in ended.stdout
    assert "rank 1 waits for a debugger on 127.0.0.1:5678" in ended.stderr
    assert "debug" in str(run_dirs(tmp_path)[0])
