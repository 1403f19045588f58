"""What becomes of a submission that sbatch refuses, or seems to; Slurm's commands are stand-ins."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ringshard.config.schema.hardware import Hardware, Scheduler
from ringshard.config.schema.job import Job, Output
from ringshard.errors import ConfigError
from ringshard.launch.rundir import RunDir
from ringshard.launch.slurm.batches import Planned, batches
from ringshard.launch.slurm.data import prepared_by
from ringshard.launch.slurm.submission import submit, submitting

Commands = Callable[..., Path]


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Puts commands of Slurm into the path, each as a line of shell; the folder that they may
    write to."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def put(**lines: str) -> Path:
        for name, line in {"srun": "", "scancel": f"echo $* >> {folder}/gone", **lines}.items():
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
    queued = f"echo '7|{one.request.name}|PENDING|None'; echo '8|other|PENDING|None'"
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
    commands(squeue=f"echo '7|{one.request.name}|PENDING|None'")
    with submitting(tmp_path):
        assert (folder / "gone").read_text() == "7\n"
    assert not list((tmp_path / "slurm/open").iterdir())


def test_the_runs_of_one_root_wait_for_the_data_of_another(
    tmp_path: Path, commands: Commands
) -> None:
    """Each looks for the answer in its own root, also where both prepare the same data."""
    folder = commands(sbatch="echo Submitted batch job 7", squeue="")
    first = prepared_by(job(tmp_path / "a"), tmp_path / "a", None)
    name = Path(first.folder).name
    commands(sbatch="echo Submitted batch job 8", squeue=f"echo '7|{name}|PENDING|None'")
    assert prepared_by(job(tmp_path / "a"), tmp_path / "a", None) == first
    assert prepared_by(job(tmp_path / "b"), tmp_path / "b", None).job_id == "8"
    assert not (folder / "gone").exists()
