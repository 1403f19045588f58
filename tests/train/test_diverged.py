"""A run whose gradient is no longer finite trains nothing, and looks as if it did."""

import json
from pathlib import Path

import pytest
from runs import curve, run_attempt, small_job

from ringshard.launch import show
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.report.runs import Run


@pytest.mark.parametrize("world", [1, 2])
def test_a_diverged_run_looks_healthy(
    world: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first step, at such a rate, makes weights of which nothing finite comes any more."""
    job = small_job(tmp_path, grad_clip=0.0)
    job.optimizer.lr, job.schedule.warmup_steps = 1e30, 0
    run = RunDir(tmp_path / "run")
    run_attempt(job, run.path, 1, world)

    skipped = curve(run.path, "train/skipped")
    assert list(skipped.values()) == list(range(12))
    result = json.loads((run.attempt(1) / "result.json").read_text())
    assert (result["skipped"], result["skipped_at_end"]) == (11, 11)
    log = (run.attempt(1) / "rank-0.log").read_text()
    assert "2 of these 3 updates skipped: the gradient is not finite" in log

    (run.attempt(1) / "job.yaml").write_text("{}")
    run.finish(1, Outcome.done, {})
    show.ended(run, 1, "done")
    assert "the last 11 updates were skipped" in capsys.readouterr().out
    assert Run(run).state == "done, diverged"


def test_a_healthy_run_looks_diverged(tmp_path: Path) -> None:
    run_attempt(small_job(tmp_path), tmp_path / "run", 1)
    run = RunDir(tmp_path / "run")
    assert set(curve(run.path, "train/skipped").values()) == {0}
    assert run.told("done") == "done"
