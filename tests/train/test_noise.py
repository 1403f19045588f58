"""The gradient noise scale: right on gradients of known noise, and the same on any processes."""

import functools

import numpy as np
import pytest
import torch
from parity.curves import Curve, RaggedRows, Topology, job, train_job

from ringshard.config.schema.parallelism import Parallelism
from ringshard.train.noise import estimates

TOPOLOGIES = {
    "fsdp-2": Topology(2),
    "fsdp-4-micro-batch-1": Topology(4, micro_batch=1),
    "hsdp-2x2": Topology(4, Parallelism(dp_replicate=2, dp_shard=2), 2),
    "cp-2": Topology(2, Parallelism(cp=2)),
    "one-micro-batch": Topology(micro_batch=16),
}


@functools.cache
def curve(topology: str = "", every: int = 5) -> Curve:
    where = TOPOLOGIES.get(topology, Topology())
    return train_job(where.world, job(where, noise_scale_every=every), RaggedRows())


def test_estimates_are_biased() -> None:
    """Tokens with gradient G + noise: ‖G‖² = 25, tr(Σ) = 50 · 4."""
    generator = torch.Generator().manual_seed(0)
    mean, few, many = torch.full((50,), 0.5**0.5, dtype=torch.float64), 12, 40
    found = []
    for _ in range(4000):
        tokens = mean + 2 * torch.randn(many, 50, generator=generator, dtype=torch.float64)
        small, big = tokens[:few].mean(0).norm(), tokens.mean(0).norm()
        found.append(torch.stack(estimates(small, big, few, many)))
    square, noise = torch.stack(found).mean(0).tolist()
    assert square == pytest.approx(25, rel=0.02)
    assert noise == pytest.approx(200, rel=0.02)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_noise_depends_on_processes(topology: str) -> None:
    one, other = curve(), curve(topology)
    assert len(one.noise) == len(other.noise) == 4
    for mine, theirs in zip(one.noise, other.noise, strict=True):
        assert list(mine) == list(theirs)
        # A difference of squares of norms that agree to 1e-6.
        np.testing.assert_allclose(list(theirs.values()), list(mine.values()), rtol=1e-4)


def test_measuring_changes_the_curve() -> None:
    measured, plain = curve(), curve(every=0)
    assert not plain.noise
    np.testing.assert_allclose(measured.losses, plain.losses, rtol=1e-6)
    np.testing.assert_allclose(measured.norms, plain.norms, rtol=1e-5)
