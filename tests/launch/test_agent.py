"""One attempt on this machine: how it ends, what the user sees, what is left behind."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
from launch.commandline import alive, begin, interrupt, run, run_dirs, seen

from ringshard.launch import torchrun
from ringshard.launch.rundir import RunDir
from ringshard.launch.stop import StopRequests


def _exit(folder: Path, attempt: int = 1) -> dict[str, object]:
    return dict(json.loads((run_dirs(folder)[0] / f"attempts/{attempt}/exit.json").read_text()))


def test_a_finished_run_is_done_and_its_environment_clean(tmp_path: Path) -> None:
    ended = run(tmp_path, "+hardware.env.MY_FLAG=a b", "hardware.threads_per_process=3")
    assert ended.returncode == 0, ended.stderr
    (run_dir,) = run_dirs(tmp_path)
    assert (run_dir / "DONE").exists() and _exit(tmp_path)["outcome"] == "done"
    environment = seen(tmp_path, 1)
    assert environment["MY_FLAG"] == "a b" and environment["OMP_NUM_THREADS"] == "3"
    assert "SLURM_JOB_ID" not in environment
    assert "rank 0 of 2" in ended.stdout and "[W" not in ended.stdout
    for shown in ("train 2.5000", "validation 2.6000", "2.7000", "resume=", "ringshard compare"):
        assert shown in ended.stdout
    attempt = run_dir / "attempts" / "1"
    names = {"job.yaml", "overrides.json", "code.json", "started.json", "exit.json", "result.json"}
    assert names <= {path.name for path in attempt.iterdir()}
    assert not [path for path in tmp_path.rglob("*") if path.name in (".hydra", "multirun.yaml")]


def test_first_failing_ranks_traceback_comes_last(tmp_path: Path) -> None:
    ended = run(tmp_path, "+hardware.env.STANDIN='raise:1'")
    assert ended.returncode == 1
    last = ended.stderr.rstrip().splitlines()
    assert last[-1] == "rank 1 failed first: RuntimeError: the lamp went out"
    assert 'raise RuntimeError("the lamp went out")' in ended.stderr
    assert "ChildFailedError" not in ended.stderr + ended.stdout
    assert (run_dirs(tmp_path)[0] / "FAILED").exists()


def test_a_killed_rank_is_named_with_its_signal(tmp_path: Path) -> None:
    ended = run(tmp_path, "+hardware.env.STANDIN='sigkill:1'")
    assert ended.returncode == 1
    assert "rank 1 was killed by SIGKILL" in ended.stderr.rstrip().splitlines()[-1]
    assert not alive(int(seen(tmp_path, 0)["pid"]))


def test_a_users_error_in_a_rank_is_one_sentence(tmp_path: Path) -> None:
    ended = run(tmp_path, "+hardware.env.STANDIN='user_error:0'")
    assert ended.returncode == 1
    sentence = "model.type=lama is not a model of transformers: use llama"
    assert ended.stderr.rstrip().splitlines()[-1] == sentence and "Traceback" not in ended.stderr


def test_ctrl_c_once_stops_the_ranks_cleanly(tmp_path: Path) -> None:
    process = begin(tmp_path, "+hardware.env.STANDIN=wait")
    ranks = [int(seen(tmp_path, rank)["pid"]) for rank in (0, 1)]
    interrupt(process)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "killed" in out and (run_dirs(tmp_path)[0] / "KILLED").exists()
    result = json.loads((run_dirs(tmp_path)[0] / "attempts/1/result.json").read_text())
    assert result["outcome"] == "stopped" and not any(map(alive, ranks))


def test_ranks_that_save_for_longer_than_torchrun_waits_are_killed(tmp_path: Path) -> None:
    """It waits for five seconds once it is told to stop, which it never is."""
    process = begin(tmp_path, "+hardware.env.STANDIN=linger")
    seen(tmp_path, 0), seen(tmp_path, 1)
    interrupt(process)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    result = json.loads((run_dirs(tmp_path)[0] / "attempts/1/result.json").read_text())
    assert result["outcome"] == "stopped" and RunDir(run_dirs(tmp_path)[0]).newest_step() == 100


def test_a_failure_while_stopping_is_told(tmp_path: Path) -> None:
    process = begin(tmp_path, "+hardware.env.STANDIN='raise_at_stop:1'")
    seen(tmp_path, 1)
    interrupt(process)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and (run_dirs(tmp_path)[0] / "FAILED").exists()
    assert err.rstrip().splitlines()[-1] == "rank 1 failed first: RuntimeError: the lamp went out"


def test_ctrl_c_while_the_last_points_are_shipped_ends_the_sweep(tmp_path: Path) -> None:
    nobody = ("tracking=mlflow", "tracking.uri=http://127.0.0.1:9", "tracking.flush_timeout_s=100")
    process = begin(tmp_path, "-m", "train.seed=1,2", "parallelism=single", *nobody)
    seen(tmp_path, 0)
    while not list(run_dirs(tmp_path)[0].glob("DONE")):
        time.sleep(0.05)
    interrupt(process)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "track sync" in err
    assert len(run_dirs(tmp_path)) == 1 and "(done)" in out


def test_a_closed_terminal_that_hangs_up_twice_is_one_request() -> None:
    requests = StopRequests()
    for number in (signal.SIGHUP, signal.SIGHUP):
        requests.remember(number, None)
    assert requests and not requests.urgent(patience_s=60)
    for number in (signal.SIGINT, signal.SIGTERM):
        requests.remember(number, None)
    assert requests.urgent(patience_s=60)


def test_ctrl_c_twice_ends_ranks_that_do_not_stop(tmp_path: Path) -> None:
    process = begin(tmp_path, "+hardware.env.STANDIN=deaf")
    ranks = [int(seen(tmp_path, rank)["pid"]) for rank in (0, 1)]
    interrupt(process)
    time.sleep(0.5)
    assert process.poll() is None
    interrupt(process)
    process.communicate(timeout=30)
    assert process.returncode == 130 and not any(map(alive, ranks))


def test_ranks_that_do_not_stop_in_time_are_killed(tmp_path: Path) -> None:
    process = begin(tmp_path, "+hardware.env.STANDIN=deaf", "launcher.stop_timeout_s=0.5")
    rank = int(seen(tmp_path, 0)["pid"])
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM and not alive(rank)


def test_an_agent_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    process = begin(tmp_path, "+hardware.env.STANDIN=wait")
    ranks = [int(seen(tmp_path, rank)["pid"]) for rank in (0, 1)]
    torchrun = [child.pid for child in psutil.Process(process.pid).children()]
    (run_dir,) = run_dirs(tmp_path)
    refused = run(tmp_path, f"resume={run_dir}")
    assert refused.returncode == 2 and "is running" in refused.stderr
    process.kill()
    process.communicate(timeout=30)
    until = time.monotonic() + 20  # the kernel tells one generation after the other
    while any(map(alive, [*torchrun, *ranks])) and time.monotonic() < until:
        time.sleep(0.05)
    assert torchrun and not any(map(alive, [*torchrun, *ranks]))
    assert RunDir(run_dir).outcome() is None and not RunDir(run_dir).is_running()


def test_a_terminal_stays_a_terminal_for_rank_0(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = begin(tmp_path, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = ""
    try:
        while piece := os.read(ours, 4096):
            text += piece.decode()
    except OSError:  # the other side closed
        pass
    process.wait(timeout=60)
    assert "tty=True" in text and "torch.distributed" not in text


def test_ranks_in_a_container_never_hear_that_they_are_to_stop(tmp_path: Path) -> None:
    """Its runtime stands between, and is called with torchrun's command line."""
    assert run(tmp_path, "parallelism=single").returncode == 0
    (run_dir,) = run_dirs(tmp_path)
    (run_dir / "attempts/1/seen-0.json").unlink()
    runtime = tmp_path / "runtime.py"
    runtime.write_text("import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))")
    job = RunDir(run_dir).job(1)
    job.hardware.slurm.container = [sys.executable, str(runtime)]
    job.hardware.slurm.container_python = sys.executable
    job.hardware.env["STANDIN"] = "wait"
    ranks = torchrun.start(job, run_dir, 1, "standin")
    seen(tmp_path, 0)
    below = psutil.Process(ranks.pid).children(recursive=True)
    try:
        torchrun.tell_ranks(ranks, set())
        assert ranks.wait(30) == 0
    finally:
        for process in below:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def test_a_rank_with_a_dead_child_makes_all_ranks_deaf() -> None:
    rank = "import subprocess, time; subprocess.Popen(['true']); print(1, flush=True); input()"
    torchrun_like = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {rank!r}])"
    command = [sys.executable, "-c", torchrun_like]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline()
        (found,) = torchrun.ranks_of(process)
        assert "input()" in found.cmdline()[-1]
        process.communicate(b"\n")
