"""A step whose gradient is not finite: nothing changes, whatever the rule."""

import math
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from optim.networks import Matrices, everything, steps
from ranks import run_ranks

from ringshard.config.schema.optimizer import OPTIMIZERS, ByRole
from ringshard.model.init import local
from ringshard.train.step import clip_gradients, update

RULES = [rule(ema_decay=0.9) for rule in OPTIMIZERS.values() if issubclass(rule, ByRole)]
MAX_NORMS = {math.nan: 0.0, math.inf: 1.0}
"""By what spoils some of the gradient: unclipped, the rest stays finite; clipped, nothing does."""


def _changed(config: ByRole, cut: bool) -> tuple[set[str], set[str]]:
    """What the steps changed whose gradient is spoilt, in a row of the last rank alone; and what
    the next one did."""
    net = Matrices().cut() if cut else Matrices()
    optimizer = steps(net, config, count=2)
    before = everything(net, optimizer)
    for name in ("wide", "vector"):
        for spoilt, max_norm in MAX_NORMS.items():
            net.give_gradients(2)
            if dist.get_rank() == dist.get_world_size() - 1:
                gradient = net.get_parameter(name).grad
                assert gradient is not None
                local(gradient)[0] = spoilt
            update(optimizer, 0.02, clip_gradients(net, max_norm))
    skipped = everything(net, optimizer)
    net.give_gradients(2)
    update(optimizer, 0.02, clip_gradients(net, 1.0))
    after = everything(net, optimizer)

    def differing(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> Iterator[str]:
        return (name for name in one if not torch.equal(one[name], other[name]))

    return set(differing(before, skipped)), set(differing(skipped, after))


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("config", RULES, ids=lambda c: c.name)
def test_a_gradient_that_is_not_finite_changes_anything(config: ByRole, world: int) -> None:
    """Weights, state or averages of weights, by one bit."""
    for skipped, taken in run_ranks(world, _changed, config, world > 1):
        assert skipped == set()
        assert {"wide", "vector", "wide.step", "wide.ema", "experts"} <= taken
