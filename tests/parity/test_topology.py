"""C1, C3, C4: the curve is a function of the config, not of the topology."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from parity.curves import (
    Curve,
    RaggedRows,
    Topology,
    assert_equal_curves,
    job,
    train,
    train_job,
)

from ringshard.config.schema.parallelism import ActivationCheckpoint, Parallelism
from ringshard.config.schema.precision import Dtype, Precision
from ringshard.config.schema.schedule import Constant

ONE = Topology()
FSDP2 = Topology(world=2)
HSDP = Topology(world=4, parallelism=Parallelism(dp_replicate=2, dp_shard=2))
ACCUMULATED = Topology(micro_batch=4)


@functools.cache
def reference(model: str = "llama") -> Curve:
    return train(ONE, model)


def test_the_reference_learns_enough_to_show_wrong_gradients() -> None:
    losses = reference().losses
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(
    "topology",
    [
        pytest.param(FSDP2, id="fsdp-2"),
        pytest.param(Topology(world=4), id="fsdp-4"),
        pytest.param(HSDP, id="hsdp-2x2"),
        pytest.param(Topology(2, Parallelism(dp_replicate=2, dp_shard=1)), id="replicas-2"),
        pytest.param(ACCUMULATED, id="accumulation-4"),
        pytest.param(Topology(micro_batch=1), id="micro-batch-1"),
        pytest.param(Topology(micro_batch=16), id="no-accumulation"),
        pytest.param(Topology(2, micro_batch=2), id="fsdp-2-accumulation-4"),
        pytest.param(
            Topology(4, Parallelism(dp_replicate=2, dp_shard=2), 1), id="hsdp-2x2-accumulation-4"
        ),
        pytest.param(
            Topology(2, Parallelism(reshard_after_forward=False)), id="fsdp-2-keep-weights"
        ),
        pytest.param(
            Topology(2, Parallelism(activation_checkpoint=ActivationCheckpoint.block)),
            id="fsdp-2-recompute",
        ),
    ],
)
def test_another_topology_changes_the_curve(topology: Topology) -> None:
    assert_equal_curves(reference(), train(topology))


@pytest.mark.parametrize("model", ["gpt2", "qwen3_tied"])
@pytest.mark.parametrize("topology", [FSDP2, HSDP], ids=["fsdp-2", "hsdp-2x2"])
def test_another_topology_changes_the_curve_of_a_tied_model(model: str, topology: Topology) -> None:
    assert_equal_curves(reference(model), train(topology, model))


@pytest.mark.parametrize("topology", [ONE, FSDP2, HSDP], ids=["one", "fsdp-2", "hsdp-2x2"])
def test_the_same_topology_twice_is_not_bitwise(topology: Topology) -> None:
    first, second = train(topology), train(topology)
    assert first.losses == second.losses
    assert first.norms == second.norms
    assert all(torch.equal(second.parameters[n], p) for n, p in first.parameters.items())


@pytest.mark.parametrize(
    "topology",
    [ONE, FSDP2, ACCUMULATED, Topology(4, Parallelism(cp=2))],
    ids=["one", "fsdp-2", "accumulated", "fsdp-2-cp-2"],
)
def test_a_token_budget_learns_the_surplus_of_its_last_step(topology: Topology) -> None:
    budgeted = job(topology, steps=None, tokens=1777)
    budgeted.schedule = Constant(warmup_steps=0)
    curve = train_job(topology.world, budgeted, RaggedRows())
    assert curve.tokens_seen == 1777

    # The same steps on rows of which no more than the budget is learned.
    exact = job(ONE, steps=len(curve.losses))
    exact.schedule = Constant(warmup_steps=0)
    assert_equal_curves(train_job(1, exact, RaggedRows(learned_at_most=1777)), curve)


def test_bf16_on_two_ranks_is_far_from_one() -> None:
    """Outside C1: rounded to 8 bits, sums in another order may differ, but not by much."""
    curves = []
    for topology in (ONE, FSDP2):
        rounded = job(topology)
        rounded.precision = Precision(compute=Dtype.bf16)
        curves.append(train_job(topology.world, rounded, RaggedRows()))
    np.testing.assert_allclose(curves[1].losses, curves[0].losses, rtol=2e-2)
    np.testing.assert_allclose(curves[0].losses, reference().losses, rtol=5e-2)
    assert curves[0].losses != reference().losses


@pytest.mark.compile
@pytest.mark.parametrize("topology", [ONE, FSDP2], ids=["one", "fsdp-2"])
def test_compiled_blocks_take_another_curve(topology: Topology) -> None:
    compiled = job(topology)
    compiled.parallelism = replace(topology.parallelism, compile=True)
    assert_equal_curves(reference(), train_job(topology.world, compiled, RaggedRows()))
