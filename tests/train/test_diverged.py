"""A run whose gradient is no longer finite trains nothing, and looks as if it did."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from runs import curve, run_attempt, small_job

from ringshard.config.schema.reader import plain
from ringshard.launch import show
from ringshard.launch.rundir import Outcome, Record, RunDir
from ringshard.report.runs import Run
from ringshard.train.attempt import Attempt


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

    (run.attempt(1) / "job.yaml").write_text(yaml.safe_dump(plain(job)))
    (run.attempt(1) / "overrides.json").write_text('["optimizer.lr=1e30", "data.path=a b"]')
    run.record.write_text(json.dumps(asdict(Record("x", "", None, 0.0, "train", [], []))))
    run.finish(1, Outcome.done, {})
    show.ended(run, 1, "done")
    told = capsys.readouterr().out
    assert "the last 11 updates were skipped" in told and "resume=" not in told
    instead = next(line for line in told.splitlines() if line.startswith("instead"))
    assert instead.endswith("'data.path=a b' optimizer.lr=3.3e+29 train.grad_clip=1")
    assert Run(run).state == "done, diverged"


def test_a_result_that_is_not_finite_is_no_json(tmp_path: Path) -> None:
    """Null in the file, with the word beside it; the number again for our own readers."""
    run, nan, inf = RunDir(tmp_path), float("nan"), float("inf")
    run.attempt(1).mkdir(parents=True)
    told = {"train_loss": nan, "val_loss": -inf, "step": 3, "corpora": {"a": inf, "b": 1.0}}
    Attempt(run.path, 1, 0).record_result(told)
    text = (run.attempt(1) / "result.json").read_text()
    file = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))
    assert file["train_loss"] is None and file["corpora"] == {"a": None, "b": 1.0}
    words = {"train_loss": "nan", "val_loss": "-inf", "corpora": {"a": "inf"}}
    assert file["not_finite"] == words
    assert repr(run.result(1)) == repr(told)


def test_a_healthy_run_looks_diverged(tmp_path: Path) -> None:
    run_attempt(small_job(tmp_path), tmp_path / "run", 1)
    run = RunDir(tmp_path / "run")
    assert set(curve(run.path, "train/skipped").values()) == {0}
    assert run.told("done") == "done"
