"""A checkpoint that stays is a model in MLflow, without its weights; one that is gone is none."""

import shutil
from pathlib import Path
from typing import Any

from tracking.shipped import expected, history, remote, ship

from ringshard.checkpoint import directory
from ringshard.checkpoint.manifest import Manifest
from ringshard.tracking import store
from ringshard.tracking.models import described
from ringshard.tracking.spool import SpoolFile


def saved(run: Any, step: int) -> Path:
    checkpoint = directory.of_step(run.path / "checkpoints", step)
    checkpoint.mkdir(parents=True)
    Manifest({}).write(checkpoint)
    return checkpoint


def models(run: Any) -> dict[str, Any]:
    client = store.connect(run.job.tracking.uri)
    found = client.search_logged_models([remote(run).info.experiment_id])
    assert len({model.name for model in found}) == len(found)
    return {model.name: model for model in found}


def test_a_checkpoint_that_is_kept_is_no_model_or_two(run: Any) -> None:
    run.attempt(1)
    run.train(1, range(5))
    last, pinned = saved(run, 4), saved(run, 2)
    directory.pin(pinned, "paper")
    ship(run)
    assert set(models(run)) == {pinned.name}  # the other one may still be removed
    run.end(1, "done")
    ship(run)
    (run.path / "track" / "shipped.json").unlink()
    ship(run)
    found = models(run)
    assert set(found) == {pinned.name, last.name}
    tags = found[last.name].tags
    assert (tags["ringshard.path"], tags["ringshard.step"]) == (str(last), "4")
    assert tags["ringshard.digest"] in (last / "manifest.json").read_text()
    assert found[last.name].source_run_id == remote(run).info.run_id
    assert {m.key: m.value for m in found[last.name].metrics} == {"train/loss": 0.2}
    assert history(run) == expected(5)  # the model has the run's points, not points of its own


def test_checkpoints_that_all_stay_are_no_models_until_the_run_ends(run: Any) -> None:
    run.job.checkpoint.keep = 0
    run.attempt(1)
    staying = {saved(run, step).name for step in (2, 4)}
    ship(run)
    assert set(models(run)) == staying


def test_all_samples_of_all_nodes_are_read_for_each_checkpoint(run: Any) -> None:
    checkpoint = saved(run, 2)
    missing = SpoolFile(run.path / "track/spool-1.0-node-0.jsonl", 1, 0, "node-0")
    (model,) = described({2: checkpoint}, [missing])
    assert model.points == []


def test_a_checkpoint_that_was_removed_stays_a_model(run: Any) -> None:
    run.attempt(1)
    gone = saved(run, 2)
    run.end(1, "killed")
    ship(run)
    assert set(models(run)) == {gone.name}
    run.attempt(2)
    shutil.rmtree(gone)
    ship(run, attempt=2)
    assert models(run) == {}
