"""Sweeps on a cluster: who asks for what, what is started again, what is never started twice."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from launch.commandline import APP, HERE, SMALL, run_dirs
from slurm.cluster import ROOT, Cluster, environment, ringshard, until

pytestmark = pytest.mark.slurm
SHAPES = {"one": 1, "two": 2}
"""Nodes by experiment: a sweep whose members need other machines."""


def paths() -> str:
    """Where the stand-in is imported from."""
    return f"{HERE}:{environment().get('PYTHONPATH', '')}".rstrip(":")


def command(folder: Path, *argv: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """jobs/train.py, whose ranks are stand-ins without torch."""
    groups = folder / "mine/experiment"
    groups.mkdir(parents=True, exist_ok=True)
    for name, nodes in SHAPES.items():
        text = f"# @package _global_\nhardware: {{nodes: {nodes}}}\n"
        (groups / f"{name}.yaml").write_text(text)
    options = ("--config-dir", str(folder / "mine"), "hardware=slurm_cpu", "tracking=jsonl")
    fixed = (*options, "hardware.processes_per_node=1", "train.global_batch=8")
    return subprocess.run(
        [sys.executable, "-c", APP, *SMALL, *fixed, *argv],
        cwd=folder,
        env=environment(PYTHONPATH=paths(), **more),
        capture_output=True,
        text=True,
    )


def prepare(folder: Path) -> None:
    """Has the data ready, so that no job has to prepare them."""
    argv = [sys.executable, str(ROOT / "jobs/prepare.py"), *SMALL]
    subprocess.run(argv, cwd=folder, env=environment(), check=True, capture_output=True)


def states(folder: Path) -> dict[str, str]:
    """State by name of run, as `ringshard runs list` tells."""
    lines = ringshard(folder, "runs", "list", "outputs").stdout.splitlines()[1:]
    return {line.split()[0]: line.split()[1] for line in lines}


def ended(folder: Path) -> bool:
    return not {"pending", "running"} & set(states(folder).values())


def test_members_of_two_shapes_get_their_own_and_only_the_failed_one_runs_again(
    slurm: Cluster, folder: Path
) -> None:
    sweep = ("-m", "sweep.name=night", "experiment=one,two", "train.seed=1,2,3")
    first = command(folder, *sweep, "+hardware.env.STANDIN='fail_seed:3'")
    assert first.returncode == 0, first.stderr
    assert "6 runs as jobs" in first.stdout
    asked = sorted((folder / "outputs/slurm").glob("tiny-*/*submission.sh"))
    texts = [script.read_text() for script in asked]
    assert sorted("--nodes=2" in text for text in texts) == [False, True]
    assert all("--array=0-2" in text for text in texts)
    until(lambda: ended(folder), 240, "the sweep ends")
    assert sorted(states(folder).values()) == ["done"] * 4 + ["failed"] * 2
    for run in run_dirs(folder):
        job = (run / "attempts/1/job.yaml").read_text()
        hosts = json.loads((run / "attempts/1/started.json").read_text())["hosts"]
        assert len(hosts) == (2 if "nodes: 2" in job else 1)
    listed = ringshard(folder, "runs", "list", "--state", "failed").stdout
    assert listed.count("seed 3 went out") == 2

    second = command(folder, *sweep, "launcher.retry=timeout")
    assert second.returncode == 0 and second.stdout.count("skipped") == 6
    third = command(folder, *sweep)
    assert "2 runs as jobs" in third.stdout and third.stdout.count("done: skipped") == 4
    until(lambda: ended(folder), 120, "the sweep ends")
    assert set(states(folder).values()) == {"done"}
    told = json.loads((folder / "outputs/sweeps/night/manifest.json").read_text())["members"]
    assert len(told) == 6 and {member["attempts"] for member in told.values()} == {1, 2}
    assert "6 runs" not in (again := command(folder, *sweep)).stdout, again.stdout


def test_a_sweep_larger_than_an_array_may_be_is_cut(slurm: Cluster, folder: Path) -> None:
    """MaxArraySize is 16 here; at most two members at once, over all arrays."""
    seeds = ",".join(map(str, range(20)))
    done = command(
        folder, "-m", f"train.seed={seeds}", "hardware.nodes=1", "launcher.max_parallel=2"
    )
    assert done.returncode == 0 and "20 runs as jobs" in done.stdout, done.stderr
    scripts = [s.read_text() for s in (folder / "outputs/slurm").glob("tiny-*/*submission.sh")]
    assert sum("--array=0-15%2" in text for text in scripts) == 1
    assert sum("--array=0-3%2" in text and "afterany" in text for text in scripts) == 1
    until(lambda: len(slurm.jobs()) == 20, 30, "all wait or run")
    until(lambda: list(slurm.jobs().values()).count("RUNNING") == 2, 30, "two run")
    cancelled = ringshard(folder, "runs", "cancel", "outputs")
    assert cancelled.stdout.count("cancelled") >= 18, cancelled.stdout + cancelled.stderr
    until(lambda: not slurm.jobs(), 60, "the queue is empty")
    assert not {"pending", "running", "interrupted"} & set(states(folder).values())


def test_sbatch_refuses_and_leaves_a_run_behind(slurm: Cluster, folder: Path) -> None:
    done = command(folder, "hardware.slurm.partition=nowhere")
    assert done.returncode == 2 and "Invalid partition" in done.stderr, done.stderr
    assert done.stderr.splitlines()[-1].startswith("sbatch refuses the job")
    assert not run_dirs(folder) and not list((folder / "outputs/slurm/open").iterdir())


def test_a_command_that_died_between_sbatch_and_its_note_leaves_an_orphan(
    slurm: Cluster, folder: Path
) -> None:
    """sbatch takes the job and then kills the command that called it."""
    prepare(folder)
    wrapper = folder / "bin/sbatch"
    wrapper.parent.mkdir()
    real = slurm.slurm("which", "sbatch").strip()
    wrapper.write_text(f'#!/bin/bash\n{real} --hold "$@"\nkill -9 $PPID\n')
    wrapper.chmod(0o755)
    path = f"{wrapper.parent}:{environment()['PATH']}"
    sweep = ("-m", "sweep.name=night", "train.seed=1,2", "hardware.nodes=1")
    dead = command(folder, *sweep, PATH=path)
    assert dead.returncode == -9 and len(slurm.jobs()) == 2
    again = command(folder, *sweep)
    assert again.returncode == 0 and "2 runs as job" in again.stdout, again.stdout + again.stderr
    until(lambda: ended(folder), 120, "the sweep ends")
    assert set(states(folder).values()) == {"done"} and not slurm.jobs()
    assert len(run_dirs(folder)) == 2


def test_the_dry_run_shows_another_script_than_sbatch_gets(slurm: Cluster, folder: Path) -> None:
    """Also that of the job which prepares the data, whose number the others will wait for."""
    sweep = ("-m", "sweep.name=night", "train.seed=1,2", "hardware.nodes=1")
    shown = command(folder, *sweep, "--dry-run").stdout
    assert not (folder / "outputs").exists()
    done = command(folder, *sweep)
    assert done.returncode == 0, done.stderr
    scripts = list((folder / "outputs/slurm").glob("*/*submission.sh"))
    ours, data = sorted(scripts, key=lambda path: path.parent.name, reverse=True)
    assert data.read_text() in shown
    (number,) = re.findall(r"afterok:(\d+)\n", text := ours.read_text())
    assert text.replace(f"afterok:{number}", f"afterok:{data.parent.name}") in shown
    assert shown.count("#!/bin/bash") == 2


def test_a_member_that_waits_is_run_here_or_forgotten_once_it_is_cancelled(
    slurm: Cluster, folder: Path
) -> None:
    sweep = ("-m", "sweep.name=night", "train.seed=1,2", "hardware.nodes=1")
    held = command(folder, *sweep, "hardware.slurm.extra={hold: true}")
    assert held.returncode == 0, held.stderr
    here = ("hardware.scheduler=local", "hardware.slurm.time_minutes=null")
    done = command(folder, *sweep, *here)
    assert done.returncode == 0 and done.stdout.count("pending: skipped") == 2, done.stderr
    assert not list(folder.rglob("attempts/2"))

    slurm.slurm("scancel", *slurm.jobs())
    until(lambda: not slurm.jobs(), 30, "the queue is empty")
    assert set(states(folder).values()) == {"killed"}
    listed = ringshard(folder, "runs", "list", "--sweep", "night").stdout
    assert listed.count("cancelled while it waited") == 2, listed
    left = command(folder, *sweep, "launcher.retry=failed")
    assert left.returncode == 0 and left.stdout.count("killed: skipped") == 2, left.stderr
    again = command(folder, *sweep, "hardware.slurm.extra={hold: true}")
    assert "2 runs as job" in again.stdout and len(slurm.jobs()) == 2, again.stderr
