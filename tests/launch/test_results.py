"""Results for sweepers of Hydra's protocol that somebody else wrote."""

import time
from pathlib import Path

import pytest
from launch.commandline import answer, begin, run, run_dirs

from ringshard.launch.housekeeping import cancel
from ringshard.launch.rundir import RunDir
from ringshard.launch.state import state

CURVE = ("parallelism=single", "launcher.max_parallel=2")
ASKED = ("hydra/sweeper=climber", "launcher.metric=val/loss", "+hardware.env.STANDIN='curve:'")


def test_another_sweeper_gets_no_result_or_a_failed_members(tmp_path: Path) -> None:
    """1.5 and 3 fail, 0.75 does not; given again, what is done answers at once."""
    argv = (*CURVE, *ASKED, "hydra.sweeper.start=0.75", "hydra.sweeper.rounds=1")
    ended = run(tmp_path, *argv)
    assert ended.returncode == 0, ended.stderr
    assert "climber: 1.5 failed: " in ended.stdout and "a rate of 1.5 blew up" in ended.stdout
    assert "climber: best 0.75 with 1.885" in ended.stdout
    (folder,) = {path.parent for path in run_dirs(tmp_path)}
    assert folder.parent.name == "sweeps"
    again = run(tmp_path, *argv, "launcher.retry=none")
    assert "climber: best 0.75 with 1.885" in again.stdout
    assert not list(tmp_path.rglob("attempts/2"))


@pytest.mark.parametrize("limit", [1, 2])
def test_a_member_that_is_cancelled_ends_another_sweeper(limit: int, tmp_path: Path) -> None:
    gated = (*ASKED[:2], "+hardware.env.STANDIN='curve:go'", "hydra.sweeper.rounds=1")
    given = ("parallelism=single", f"launcher.max_parallel={limit}", "hydra.sweeper.start=0.01")
    command = begin(tmp_path, *given, *gated)
    (tmp_path / "go-0.01").touch()
    until = time.monotonic() + 60
    while not (worse := [r for r in runs_at_work(tmp_path) if r.job(1).optimizer.lr == 0.02]):
        assert time.monotonic() < until, "the worse run does not begin"
        time.sleep(0.05)
    cancel(worse[0], state(worse[0], None))
    out, err = command.communicate(timeout=60)
    assert command.returncode == 0, out + err
    assert "climber: 0.02 failed: " in out and "cancelled" in out
    assert "climber: best 0.01 with 0.010" in out


def runs_at_work(folder: Path) -> list[RunDir]:
    spools = (folder / "outputs").rglob("spool-*-rank0.jsonl")
    return [RunDir(spool.parents[1]) for spool in spools]


def test_hydras_own_sweeper_hides_a_failure(tmp_path: Path) -> None:
    basic = ("hydra/sweeper=basic", *ASKED[1:], f"hydra.sweep.dir={tmp_path / 'hydra'}")
    ended = run(tmp_path, "-m", *CURVE, *basic, "optimizer.lr=0.01,2")
    assert ended.returncode == 1 and "a rate of 2" in ended.stderr, ended.stderr
    assert len(run_dirs(tmp_path)) == 2 and (tmp_path / "hydra/multirun.yaml").exists()


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (["hydra/sweeper=basic"], "launcher.metric is missing"),
        (["hydra/sweeper=basic", "launcher.metric=val/loss", "--dry-run"], "leave --dry-run out"),
        (["hydra/sweeper=climbr", "launcher.metric=val/loss"], "climbr"),
        (["hydra/sweeper=basic", "launcher.metric=val/loss", "train.stps=3"], "train.steps"),
        (["launcher.minimize=false"], "launcher.minimize=False would have no effect"),
        (["launcher.metric=val/loss", "tracking=none"], "launcher.metric=val/loss would have no"),
    ],
)
def test_another_sweeper_is_asked_for_in_vain(
    argv: list[str], sentence: str, tmp_path: Path
) -> None:
    ended = answer(tmp_path, *argv)
    assert ended.returncode == 2 and sentence in ended.stderr, ended.stderr
    assert ended.stderr.count("\n") == 1 and not list(tmp_path.rglob("run.json"))
