"""What becomes of a submission that sbatch refuses, or seems to.

Slurm's commands are stand-ins with recorded answers, which a real Slurm gives only when its limits,
its network or its controller fail; tests/slurm submits to a real one.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from launch.commandline import SMALL, answer, run_dirs
from typer.testing import CliRunner

from ringshard import runs
from ringshard.config.schema.hardware import Hardware, Scheduler, Slurm
from ringshard.config.schema.job import Job, Output
from ringshard.data.prepare import prepare
from ringshard.errors import ConfigError
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.slurm import queue
from ringshard.launch.slurm.batches import Planned, batches
from ringshard.launch.slurm.data import prepared_by
from ringshard.launch.slurm.one import run_one
from ringshard.launch.slurm.refusal import refusal
from ringshard.launch.slurm.start import require_cluster
from ringshard.launch.slurm.submission import submit, submitting

Commands = Callable[..., Path]


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Puts commands of Slurm into the path, each as a line of shell; the folder that they may
    write to."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for name in [name for name in os.environ if name.startswith("SBATCH_")]:
        monkeypatch.delenv(name)

    def put(**lines: str) -> Path:
        known = {"srun": "", "scontrol": "exit 1"}
        for name, line in {**known, "scancel": f"echo $* >> {folder}/gone", **lines}.items():
            (folder / name).write_text(f"#!/bin/sh\n{line}\n")
            (folder / name).chmod(0o755)
        return folder

    return put


def job(root: Path) -> Job:
    return Job(hardware=Hardware(Scheduler.slurm), output=Output(str(root), "run"))


@pytest.mark.parametrize(
    "sbatch",
    ["echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1", "echo Thanks"],
)
def test_a_job_that_slurm_took_though_sbatch_said_no_goes_on_as_a_ghost(
    sbatch: str, tmp_path: Path, commands: Commands
) -> None:
    (one,) = batches([Planned(job(tmp_path), RunDir(tmp_path / "r"), 1)], None, [], 16)
    queued = f"echo '7|PENDING|None|{one.request.name}'; echo '8|PENDING|None|other'"
    folder, back = commands(sbatch=sbatch, squeue=queued), tmp_path / "back"
    with pytest.raises(ConfigError), submitting(tmp_path):
        submit(tmp_path, one, lambda: None, back.touch)
    assert (folder / "gone").read_text() == "7\n" and back.exists()


def test_a_ghost_that_comes_late_is_never_looked_for(tmp_path: Path, commands: Commands) -> None:
    (one,) = batches([Planned(job(tmp_path), RunDir(tmp_path / "r"), 1)], None, [], 16)
    folder = commands(sbatch="echo 'error: Socket timed out' >&2; exit 1", squeue="")
    with pytest.raises(ConfigError), submitting(tmp_path):
        submit(tmp_path, one, lambda: None)
    assert not (folder / "gone").exists()
    commands(squeue=f"echo '7|PENDING|None|{one.request.name}'")
    with submitting(tmp_path):
        assert (folder / "gone").read_text() == "7\n"
    assert not list((tmp_path / "slurm/open").iterdir())


def test_the_runs_of_one_root_wait_for_the_data_of_another(
    tmp_path: Path, commands: Commands
) -> None:
    """Each looks for the answer in its own root, also where both prepare the same data."""
    folder = commands(sbatch="echo Submitted batch job 7", squeue="")
    with submitting(tmp_path / "a"):
        first = prepared_by(job(tmp_path / "a"), tmp_path / "a", None)
    name = Path(first.folder).name
    commands(sbatch="echo Submitted batch job 8", squeue=f"echo '7|PENDING|None|{name}'")
    assert prepared_by(job(tmp_path / "a"), tmp_path / "a", None) == first
    with submitting(tmp_path / "b"):
        assert prepared_by(job(tmp_path / "b"), tmp_path / "b", None).job_id == "8"
    assert not (folder / "gone").exists()


def test_data_are_prepared_with_the_qos_and_constraint_of_another_partition(
    tmp_path: Path, commands: Commands
) -> None:
    commands(sbatch="echo Submitted batch job 7", squeue="")
    asked = job(tmp_path)
    asked.hardware.slurm = Slurm("gpu", "lab", "long", constraint="h100", prepare_partition="cpu")
    with submitting(tmp_path):
        prepared_by(asked, tmp_path, None)
    (script,) = (tmp_path / "slurm").glob("data-*/*submission.sh")
    text = script.read_text()
    assert "--partition=cpu\n" in text and "--account=lab\n" in text
    assert "qos" not in text and "constraint" not in text


def test_a_cluster_without_arrays_ends_in_a_traceback(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "setting", lambda name, default: "0")
    commands(sbatch="exit 1", squeue="")
    shown = answer(tmp_path, "hardware=slurm_cpu", "-m", "train.seed=1,2", "--dry-run")
    assert shown.returncode == 0 and shown.stdout.count("submitit.core._submit") == 3
    assert "--array" not in shown.stdout


def test_a_dry_run_says_nothing_of_the_job_that_would_prepare_the_data(tmp_path: Path) -> None:
    """It is one for all members that read the same, and none where the data are there."""
    sweep = ("hardware=slurm_cpu", "-m", "train.seed=1,2", "data.seq_len=8,16", "--dry-run")
    shown = answer(tmp_path, *sweep)
    assert shown.returncode == 0, shown.stderr
    names = re.findall(r"--job-name=(data-\w+)\n", shown.stdout)
    assert len(set(names)) == len(names) == 2
    waits = re.findall(r"--dependency=afterok:(data-\w+)\n", shown.stdout)
    assert sorted(waits) == sorted(names) and shown.stdout.count("--array=0-1") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]
    script = str(Path(__file__).parents[2] / "jobs/prepare.py")
    subprocess.run([sys.executable, script, *SMALL], cwd=tmp_path, check=True, capture_output=True)
    ready = answer(tmp_path, *sweep)
    assert len(set(re.findall(r"data-\w{8}", ready.stdout))) == 1, "that of data.seq_len=8"


def test_a_dry_run_takes_data_that_are_not_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = answer(tmp_path, "hardware=slurm_cpu", "data.path=nope.txt", "--dry-run")
    assert shown.returncode == 2 and "nope.txt matches no file" in capfd.readouterr().err


def test_jobs_die_without_a_word_where_env_can_not_block_signals(
    tmp_path: Path, commands: Commands
) -> None:
    commands(squeue="")
    require_cluster()
    commands(env="exit 125")
    with pytest.raises(ConfigError, match=r"coreutils 8\.31"):
        require_cluster()


def test_a_refusal_in_mid_sweep_hides_what_was_submitted(
    tmp_path: Path, commands: Commands
) -> None:
    """The data, and the first of two arrays."""
    folder = tmp_path / "bin"
    limit = "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Job violates policy"
    sbatch = f"""
        [ $(wc -l < {folder}/queue) = 2 ] && {{ printf '{limit}' >&2; exit 1; }}
        id=$(($(wc -l < {folder}/queue) + 1))
        echo "$id|PENDING|None|$(sed -n 's/#SBATCH --job-name=//p' $1)" >> {folder}/queue
        echo Submitted batch job $id
    """
    (folder / "queue").touch()
    commands(sbatch=sbatch, squeue=f"cat {folder}/queue")
    nodes = ("hardware.nodes=1,2", "parallelism.dp_shard=-1", "sweep.name=night")
    done = answer(tmp_path, "hardware=slurm_cpu", "-m", *nodes)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "sbatch refuses the job (QOSMaxSubmitJobPerUserLimit: Job violates policy): give the"
        " command again later"
    )
    assert "1 run as job 2\n" in done.stdout
    (run,) = run_dirs(tmp_path)
    told = json.loads((run.parent / "manifest.json").read_text())["members"]
    assert sorted(member["state"] for member in told.values()) == ["new", "pending"]
    assert told[run.name]["job"] == "2"


REFUSED = {
    "Requested time limit is invalid (missing or exceeds some limit)": "slurm.time_minutes, no",
    "Invalid partition name specified": "change hardware.slurm.partition (or",
    "Invalid account or account/partition combination specified": "change hardware.slurm.account",
    "Invalid qos specification": "change hardware.slurm.qos",
    "Requested node configuration is not available": "change hardware.nodes, hardware.processes",
    "Memory required by task is not available": "or hardware.slurm.memory_gb to what",
    "Plugin initialization failed": "change hardware.slurm or hardware.nodes",
}


@pytest.mark.parametrize("words", REFUSED)
def test_each_refusal_is_blamed_on_the_number_of_nodes(words: str) -> None:
    said = f"sbatch: error: Batch job submission failed: {words}"
    assert f"{words}): " in refusal(said, 1) and REFUSED[words] in refusal(said, 1)


def test_an_array_larger_than_the_limit_is_to_be_given_again_later_for_ever() -> None:
    told = "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Job violates policy"
    assert refusal(told, 20).endswith("and fewer runs at once if the limit is below these 20")
    assert refusal(told, 1).endswith(": give the command again later")


def test_one_run_whose_data_have_changed_keeps_its_whole_sweep_from_being_tried_again(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands(sbatch="echo Submitted batch job 7", squeue="")
    seeds = ("-m", "train.seed=1,2,3", "launcher.snapshot=none", "sweep.name=night")
    assert answer(tmp_path, "hardware=slurm_cpu", *seeds).returncode == 0
    changed, *others = run_dirs(tmp_path)
    prepare(RunDir(changed).job(1).data)
    frozen = changed / "attempts/1/job.yaml"
    frozen.write_text(frozen.read_text().replace("digest: null", "digest: other"))
    commands(sbatch="echo Submitted batch job 8", squeue="")
    done = CliRunner().invoke(runs.app, ["retry", *map(str, (changed, *others))])
    assert done.exit_code == 2 and "2 runs as job 8" in done.output, done.output
    assert "are not what they were (digest other" in done.output.splitlines()[-1]
    assert [RunDir(run).last_attempt() for run in (changed, *others)] == [1, 2, 2]


def test_a_hiccup_of_squeue_ends_in_a_traceback(tmp_path: Path, commands: Commands) -> None:
    """The second question is the one that fails."""
    seen = tmp_path / "seen"
    squeue = f"[ -e {seen} ] && {{ echo 'error: Unable to contact' >&2; exit 1; }}\ntouch {seen}"
    commands(sbatch="echo Submitted batch job 7", squeue=squeue)
    done = answer(tmp_path, "hardware=slurm_cpu")
    assert done.returncode == 1
    assert done.stderr == (
        "Slurm does not answer as it should (squeue: error: Unable to contact): give the command"
        " again later\n"
    )


def test_ctrl_c_ends_in_a_traceback_and_leaves_the_job_without_a_word(
    tmp_path: Path,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    gone = "echo 'error: Unable to contact' >&2; exit 1"
    commands(sbatch="echo Submitted batch job 7", squeue="", scancel=gone)
    monkeypatch.setattr("ringshard.launch.slurm.one.state", stop)
    with pytest.raises(KeyboardInterrupt):
        run_one(RunDir(tmp_path / "r"), job(tmp_path), "standin", {}, [])
    assert "job 7 goes on (scancel: error: Unable to contact)" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_a_new_one_to_be_resumed(
    tmp_path: Path, commands: Commands
) -> None:
    commands(squeue="")
    done = answer(tmp_path, "hardware=slurm_cpu", "launcher.after=nope")
    assert done.returncode == 2 and "nope is no run: give the folder of one" in done.stderr


def test_a_retry_that_can_not_follow_is_told_an_override_that_it_does_not_take(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is told instead works."""
    monkeypatch.chdir(tmp_path)
    commands(sbatch="echo Submitted batch job 7", squeue="echo '7|PENDING|None|x'")
    slurm = ("hardware=slurm_cpu", "launcher.snapshot=none")
    assert answer(tmp_path, *slurm, "output.name=first").returncode == 0
    (first,) = run_dirs(tmp_path)
    follows = answer(tmp_path, *slurm, f"launcher.after={first}", "output.name=second")
    assert follows.returncode == 0, follows.stderr
    (second,) = (run for run in run_dirs(tmp_path) if run != first)
    commands(sbatch="echo Submitted batch job 8", squeue="")
    RunDir(first).finish(1, Outcome.killed, {"why": "cancelled"})
    console = CliRunner()
    refused = console.invoke(runs.app, ["retry", str(second)])
    assert refused.exit_code == 2
    _, _, told = refused.output.strip().partition(" runs ")
    assert told.startswith("resume ") and told.endswith(" launcher.after=null"), refused.output
    done = console.invoke(runs.app, shlex.split(told))
    assert done.exit_code == 0 and "1 run as job 8" in done.output, done.output
