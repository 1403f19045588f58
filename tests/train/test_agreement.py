"""What one rank knows of a step, all know before its backward pass; none waits for ever."""

import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from runs import small_job

from ringshard.config.schema.job import Job
from ringshard.config.schema.parallelism import Parallelism
from ringshard.model.head import IGNORED
from ringshard.parallel import mesh as meshes
from ringshard.parallel.ring.group import TIMEOUT
from ringshard.train import assemble
from ringshard.train.agreement import Agreement
from ringshard.train.attempt import Attempt
from ringshard.train.batches import Batch
from ringshard.train.session import train_on


def _agree(asked: int) -> tuple[bool, list[int], int]:
    """Row k of the step has k + 1 targets and 10 + k tokens of padding, and rank k reads it."""
    rank = dist.get_rank()
    targets = torch.where(torch.arange(4) > rank, IGNORED, 1)[None]  # (1, S)
    corpus, bounds = torch.zeros(1, dtype=torch.int64), [np.array([0, 4])]
    inputs, padding = torch.zeros_like(targets), 10 + rank
    batch = Batch(rank, inputs, targets, corpus, bounds, padding, step_rows=2)
    mesh = meshes.build(Parallelism(dp_shard=2), torch.device("cpu"))
    agreed = Agreement(batch, rank == asked, mesh).wait()
    return agreed.stop, agreed.counts.tolist(), agreed.padding


@pytest.mark.parametrize("asked", [0, 1])
def test_a_rank_that_is_asked_to_stop_stops_alone(asked: int) -> None:
    assert run_ranks(2, _agree, asked) == [(True, [1, 2], 21)] * 2


def test_ranks_stop_without_being_asked() -> None:
    assert run_ranks(2, _agree, -1) == [(False, [1, 2], 21)] * 2


def _timeouts(job: Job, run: Path) -> dict[str, timedelta]:
    """Of all groups that a training makes, by their description."""
    mesh = meshes.build(job.parallelism, torch.device("cpu"))
    train_on(mesh, job, Attempt(run, 1, mesh.rank), lambda: False, time.time())
    made = set(dist.distributed_c10d._world.pg_map) - {dist.group.WORLD}
    return {
        f"{group.group_name}: {dist.get_process_group_ranks(group)}": group._get_backend(
            torch.device("cpu")
        ).options._timeout
        for group in made
    }


def test_a_group_waits_for_a_dead_rank_longer_than_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the one that saves, whose peers may write to slow disks."""
    saving = timedelta(minutes=21)
    monkeypatch.setattr(assemble, "SAVING_TIMEOUT", saving)
    job = small_job(tmp_path, steps=1)
    job.parallelism = Parallelism(dp_replicate=2, cp=2)
    (tmp_path / "run/attempts/1").mkdir(parents=True)
    for timeouts in run_ranks(4, _timeouts, job, tmp_path / "run"):
        assert set(timeouts.values()) == {TIMEOUT, saving}, timeouts
        assert list(timeouts.values()).count(saving) == 1
