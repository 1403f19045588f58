"""C1 for optimizers of our own: the curve is a function of the config, not of the topology."""

import functools

import numpy as np
import pytest
from parity.curves import Curve, RaggedRows, Topology, job, train_job

from ringshard.config.schema.optimizer import (
    AdamWHyperball,
    Lion,
    Lion8bit,
    Muon,
    MuonHyperball,
    MuonMona,
    MuonMonaHyperball,
    Optimizer,
)
from ringshard.config.schema.parallelism import Parallelism

OPTIMIZERS: list[Optimizer] = [
    Muon(lr=1e-2),
    MuonMona(lr=1e-2),
    MuonHyperball(adamw_lr=1e-2),
    MuonMonaHyperball(adamw_lr=1e-2),
    AdamWHyperball(lr=0.02, adamw_lr=1e-2),
    Lion(lr=3e-3),
    Lion8bit(lr=3e-3),
]
TOPOLOGIES = {
    "fsdp-2": Topology(2),
    "fsdp-4": Topology(4),
    "hsdp-2x2": Topology(4, Parallelism(dp_replicate=2, dp_shard=2)),
    "replicas-2": Topology(2, Parallelism(dp_replicate=2, dp_shard=1)),
    "cp-2": Topology(2, Parallelism(cp=2)),
    "fsdp-2-cp-2": Topology(4, Parallelism(dp_shard=2, cp=2)),
    "accumulation-4": Topology(micro_batch=4),
}


@functools.cache
def curve(index: int, topology: str, model: str = "llama") -> Curve:
    where = TOPOLOGIES.get(topology, Topology())
    own = job(where, model)
    own.optimizer = OPTIMIZERS[index]
    return train_job(where.world, own, RaggedRows())


ALL = OPTIMIZERS.index(MuonMonaHyperball(adamw_lr=1e-2))
"""The one with every stage is tried on every topology."""
OFTEN = ("fsdp-4", "fsdp-2-cp-2", "accumulation-4")
CASES = [(i, t) for i in range(len(OPTIMIZERS)) for t in TOPOLOGIES if i == ALL or t in OFTEN]


@pytest.mark.rotated(3)
@pytest.mark.parametrize(
    ("index", "topology"), CASES, ids=lambda v: v if isinstance(v, str) else OPTIMIZERS[v].name
)
def test_another_topology_changes_the_curve(index: int, topology: str) -> None:
    one, other = curve(index, "one"), curve(index, topology)
    assert one.losses[-1] < 0.85 * one.losses[0]
    np.testing.assert_allclose(other.losses, one.losses, rtol=1e-4)
    np.testing.assert_allclose(other.norms, one.norms, rtol=1e-3)


def test_fused_matrices_stored_otherwise_take_another_curve_on_two_ranks() -> None:
    np.testing.assert_allclose(
        curve(0, "fsdp-2", "gpt2").losses, curve(0, "one", "gpt2").losses, rtol=1e-4
    )


def test_a_growing_batch_depends_on_processes_or_on_where_the_run_was_cut() -> None:
    def grown(topology: Topology) -> Curve:
        ramped = job(topology, batch_ramp=[4, 8], batch_ramp_steps=10)
        return train_job(topology.world, ramped, RaggedRows())

    one = grown(Topology(micro_batch=4))
    for topology in (Topology(2, micro_batch=2), Topology(4, Parallelism(cp=2), micro_batch=1)):
        found = grown(topology)
        np.testing.assert_allclose(found.losses, one.losses, rtol=1e-5)
        assert found.tokens_seen == one.tokens_seen
