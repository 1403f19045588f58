"""C2, C5: a run that stops anywhere goes on as if it had not, on the same ranks bitwise, on others
within C1."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import curve, run_attempt, small_job

from ringshard.checkpoint.manifest import Manifest
from ringshard.config.schema.data import Packing
from ringshard.config.schema.parallelism import Attention
from ringshard.registry import register
from ringshard.tracking.spool import Spool, read_spool, spools

STEPS = 12  # 96 rows: more than two epochs of the small text


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, torch.Tensor]]:
    """An undisturbed run on one process."""
    folder = tmp_path_factory.mktemp("whole")
    return folder / "run", run_attempt(small_job(folder), folder / "run", 1)


@pytest.mark.parametrize("world", [1, 2])
def test_a_run_killed_between_checkpoints_is_not_bitwise_the_undisturbed_one(
    world: int, tmp_path: Path
) -> None:
    job = small_job(tmp_path)
    undisturbed = run_attempt(job, tmp_path / "whole", 1, world)

    # Saved at step 4, told of up to step 6, dead in step 7: 5 and 6 are trained again.
    run_attempt(job, tmp_path / "run", 1, world, die_before=7)
    resumed = run_attempt(job, tmp_path / "run", 2, world)

    assert list(curve(tmp_path / "run")) == list(range(1, STEPS + 1))
    assert curve(tmp_path / "run") == curve(tmp_path / "whole")
    assert curve(tmp_path / "run", "val/loss") == curve(tmp_path / "whole", "val/loss")
    assert all(torch.equal(resumed[name], tensor) for name, tensor in undisturbed.items())


def test_a_checkpoint_is_ahead_of_the_metrics(tmp_path: Path) -> None:
    """Saved at step 4 and dead in step 6, between the reports after steps 3 and 6."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text('{"signature": "abc"}')
    job = small_job(tmp_path)
    job.checkpoint.asynchronous = False  # else it may die before all is written
    run_attempt(job, run, 1, die_before=6)
    assert list(curve(run)) == [1, 2, 3, 4]
    about = Manifest.read(run / "checkpoints" / "step-00000004").about
    assert (about["signature"], about["schedule"]["name"]) == ("abc", job.schedule.name)
    assert (about["attempt"], about["data"]) == (1, job.data.digest)


def test_a_checkpoint_is_on_the_disk_before_the_metrics_of_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, noted = tmp_path / "run", tmp_path / "noted"

    def note(spool: Spool) -> None:
        newest = max(record.step for record, _ in read_spool(spool.path) if record)
        begun = list((run / "checkpoints").glob(f"*step-{newest:08d}*"))
        with noted.open("a") as file:
            file.write(f"{newest} {len(begun)}\n")

    monkeypatch.setattr(Spool, "sync", note)
    run_attempt(small_job(tmp_path), run, 1)
    assert noted.read_text() == "4 0\n8 0\n12 0\n"


def test_dropout_after_a_resume_is_other_than_undisturbed(tmp_path: Path) -> None:
    job = small_job(tmp_path)
    job.model.config["attention_dropout"] = 0.2
    job.parallelism.attention = Attention.sdpa
    job.data.packing = Packing.concat
    run_attempt(job, tmp_path / "whole", 1, 2)
    run_attempt(job, tmp_path / "run", 1, 2, stop_before=7)
    run_attempt(job, tmp_path / "run", 2, 2)
    assert curve(tmp_path / "run") == curve(tmp_path / "whole")


@pytest.mark.rotated(3)
@pytest.mark.parametrize(
    "topologies",
    [
        pytest.param([(2, 1), (1, 1)], id="fsdp-2-to-one"),
        pytest.param([(2, 1), (4, 1)], id="fsdp-2-to-4"),
        pytest.param([(1, 1), (2, 1)], id="one-to-fsdp-2"),
        pytest.param([(2, 2), (1, 1)], id="cp-2-to-one"),
        pytest.param([(1, 1), (2, 2)], id="one-to-cp-2"),
        pytest.param([(2, 1), (4, 2)], id="fsdp-2-to-fsdp-2-cp-2"),
    ],
)
def test_a_run_resumed_on_another_topology_takes_another_curve(
    topologies: list[tuple[int, int]],
    tmp_path: Path,
    whole: tuple[Path, dict[str, torch.Tensor]],
) -> None:
    """Processes and cp, before and after."""
    job = small_job(tmp_path)
    (world, job.parallelism.cp), later = topologies
    run_attempt(job, tmp_path / "run", 1, world, stop_before=6)
    world, job.parallelism.cp = later
    parameters = run_attempt(job, tmp_path / "run", 2, world)

    expected = curve(whole[0])
    got = curve(tmp_path / "run")
    assert list(got) == list(expected)
    np.testing.assert_allclose(list(got.values()), list(expected.values()), rtol=1e-5)
    for name, tensor in whole[1].items():
        torch.testing.assert_close(parameters[name], tensor, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("world", [1, 2])
def test_a_stop_is_not_agreed_at_one_step(world: int, tmp_path: Path) -> None:
    run_attempt(small_job(tmp_path), tmp_path / "run", 1, world, stop_before=6)
    result = json.loads((tmp_path / "run/attempts/1/result.json").read_text())
    assert (result["outcome"], result["step"]) == ("stopped", 6)
    assert result["checkpoint"].endswith("step-00000006")


def test_the_result_lacks_what_the_user_is_told(
    whole: tuple[Path, dict[str, torch.Tensor]],
) -> None:
    result = json.loads((whole[0] / "attempts/1/result.json").read_text())
    assert result["outcome"] == "finished"
    assert result["step"] == STEPS
    assert result["tokens"] == sum(curve(whole[0], "train/targets").values()) > STEPS * 8 * 60
    assert result["train_loss"] == curve(whole[0])[STEPS]
    assert result["val_loss"] == curve(whole[0], "val/loss")[STEPS]
    assert 0 < result["bigram_entropy"] < 3
    assert result["tokens_per_s"] > 0


@pytest.mark.parametrize("cp", [1, 2, 4])
def test_evaluation_depends_on_the_number_of_ranks(
    cp: int, tmp_path: Path, whole: tuple[Path, dict[str, torch.Tensor]]
) -> None:
    job = small_job(tmp_path)
    job.parallelism.cp = cp
    run_attempt(job, tmp_path / "run", 1, 4)
    expected, got = curve(whole[0], "val/loss"), curve(tmp_path / "run", "val/loss")
    assert list(got) == list(expected) == [5, 10, 12]
    np.testing.assert_allclose(list(got.values()), list(expected.values()), rtol=1e-5)
    right = curve(whole[0], "val/accuracy")
    assert curve(tmp_path / "run", "val/accuracy") == right and 0 < right[12] < 1


@register("hook", "fails_after_loss_of_a_line")
class FailsAfterLossOfALine:
    """After the first step the disk refuses a line, and the rank fails before the next one."""

    def after_step(self, trainer: Any, last: bool) -> None:
        trainer.sink.log(1, {"train/odd": None})
        raise RuntimeError("the lamp went out")


def test_lines_lost_before_a_rank_fails_are_not_counted(tmp_path: Path) -> None:
    job = small_job(tmp_path, hooks={"fails_after_loss_of_a_line": {}})
    with pytest.raises(RuntimeError, match="the lamp went out"):
        run_attempt(job, tmp_path / "run", 1)
    (spool,) = spools(tmp_path / "run")
    *_, (record, _) = read_spool(spool.path)
    assert record is not None and record.dropped == 1
