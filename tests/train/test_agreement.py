"""What one rank knows of a step, all know before its backward pass."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

from ringshard.config.schema.parallelism import Parallelism
from ringshard.model.head import IGNORED
from ringshard.parallel import mesh as meshes
from ringshard.train.agreement import Agreement
from ringshard.train.batches import Batch


def _agree(asked: int) -> tuple[bool, list[int]]:
    """Row k of the step has k + 1 targets, and rank k reads it."""
    rank = dist.get_rank()
    targets = torch.where(torch.arange(4) > rank, IGNORED, 1)[None]  # (1, S)
    corpus, bounds = torch.zeros(1, dtype=torch.int64), [np.array([0, 4])]
    batch = Batch(rank, torch.zeros_like(targets), targets, corpus, bounds, step_rows=2)
    mesh = meshes.build(Parallelism(dp_shard=2), torch.device("cpu"))
    agreed = Agreement(batch, rank == asked, mesh).wait()
    return agreed.stop, agreed.counts.tolist()


@pytest.mark.parametrize("asked", [0, 1])
def test_a_rank_that_is_asked_to_stop_stops_alone(asked: int) -> None:
    assert run_ranks(2, _agree, asked) == [(True, [1, 2])] * 2


def test_ranks_stop_without_being_asked() -> None:
    assert run_ranks(2, _agree, -1) == [(False, [1, 2])] * 2
