"""What was submitted is what runs, wherever and whenever it was submitted."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from runs import curve
from slurm.cluster import ROOT, SLOW, TRAIN, TWO, Cluster, Submitted, environment, submitted, until

pytestmark = pytest.mark.slurm
TOLD = """
from ringshard.registry import register


@register("hook", "told")
class Told:
    def __init__(self, also):
        self.also = also

    def after_step(self, trainer, last):
        print("code {text},", self.also, flush=True)
"""


def test_four_processes_on_two_nodes_take_another_curve(
    slurm: Cluster, folder: Path, undisturbed: Path
) -> None:
    run = submitted(folder, "hardware=slurm_cpu", *SLOW[:1], "train.micro_batch=2")
    assert run.ends()["outcome"] == "done"
    for metric in ("train/loss", "train/grad_norm", "val/loss"):
        expected, got = curve(undisturbed, metric), curve(run.path, metric)
        assert list(got) == list(expected)
        np.testing.assert_allclose(list(got.values()), list(expected.values()), rtol=1e-5)
    losses = list(curve(run.path).values())
    assert losses[-1] < 0.8 * losses[0]
    evaluate = [sys.executable, str(ROOT / "jobs/evaluate.py"), f"run={run.path}", "sequences=4"]
    done = subprocess.run(evaluate, cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0 and "is submitted" in done.stdout, done.stdout + done.stderr
    assert f"{list(curve(run.path, 'val/loss').values())[-1]:.4f} nats" in done.stdout


def git(folder: Path, *words: str) -> None:
    folder.mkdir(exist_ok=True)
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *who, *words], cwd=folder, check=True)


def test_what_is_edited_while_a_job_is_held_runs(slurm: Cluster, folder: Path) -> None:
    """Code and YAML alike; the code lies in a submodule of the user's repository."""
    git(folder / "shared", "init", "-q")
    option, run = folder / "mine/experiment/telling.yaml", None
    option.parent.mkdir(parents=True)
    ours = (
        "--config-dir",
        "mine",
        "experiment=telling",
        "user.modules=[ours.told]",
        "train.steps=2",
    )
    for text in ("as submitted", "as edited"):
        hook = f"hooks: {{told: {{also: yaml {text}}}}}"
        option.write_text(f"# @package _global_\ntrain: {{{hook}}}\n")
        if not run:
            (folder / "shared/told.py").write_text(TOLD.format(text=text))
            git(folder / "shared", "add", ".")
            git(folder / "shared", "commit", "-q", "-m", "as submitted")
            git(folder, "init", "-q")
            git(folder, "submodule", "--quiet", "add", str(folder / "shared"), "ours")
            frozen = ("launcher.snapshot=git", "hardware.slurm.extra={hold: true}")
            run = submitted(folder, *TWO, *ours, "train.steps=2", *frozen)
        else:
            (folder / "ours/told.py").write_text(TOLD.format(text=text))
    assert run
    slurm.slurm("scontrol", "release", run.job)
    assert run.ends()["outcome"] == "done"
    log = (run.path / "attempts/1/rank-1.log").read_text()
    assert "code as submitted, yaml as submitted" in log and "edited" not in log


def test_a_command_inside_a_job_hands_its_own_allocation_on(slurm: Cluster, folder: Path) -> None:
    command = [sys.executable, str(ROOT / "jobs/train.py"), *TRAIN, *TWO, "train.steps=2"]
    outer = ["srun", "-N1", "-n1", "-c1", "-t5", *command]
    done = subprocess.run(outer, cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (record,) = folder.rglob("run.json")
    run = Submitted(record.parent)
    assert run.ends()["outcome"] == "done"
    until(lambda: not slurm.jobs(), 30, "the queue is empty")
    assert slurm.accounted(run.job) == "COMPLETED"
