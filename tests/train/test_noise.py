"""The gradient noise scale: right on gradients of known noise, and the same on any processes."""

import functools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from parity.curves import Curve, RaggedRows, Topology, job, train_job
from runs import curve as spooled
from runs import run_attempt, small_job

from ringshard.config.schema.parallelism import Parallelism
from ringshard.train.noise import NoiseScale, estimates

TOPOLOGIES = {
    "fsdp-2": Topology(2),
    "fsdp-4-micro-batch-1": Topology(4, micro_batch=1),
    "hsdp-2x2": Topology(4, Parallelism(dp_replicate=2, dp_shard=2), 2),
    "cp-2": Topology(2, Parallelism(cp=2)),
    "fsdp-8": Topology(8, micro_batch=2),
    "one-micro-batch": Topology(micro_batch=16),
    "accumulation-8": Topology(micro_batch=2),
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


@pytest.mark.rotated(3)
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


@pytest.mark.parametrize(("world", "end"), [(1, {"die_before": 8}), (2, {"stop_before": 5})])
def test_after_a_resume_the_critical_batch_is_another_one(
    world: int, end: dict[str, int], tmp_path: Path
) -> None:
    """Its averages began anew. Killed with step 4 saved, or stopped, and measured at every third
    step."""
    measured = small_job(tmp_path, noise_scale_every=3)
    measured.checkpoint.asynchronous = False  # else it may die before all is written
    run_attempt(measured, tmp_path / "whole", 1, 1)
    run_attempt(measured, tmp_path / "run", 1, 1, **end)
    run_attempt(measured, tmp_path / "run", 2, world)
    for name in ("gradient_square", "trace", "critical_batch"):
        whole, found = (spooled(tmp_path / run, f"noise/{name}") for run in ("whole", "run"))
        assert list(found) == list(whole) == [3, 6, 9, 12]
        assert found == (whole if world == 1 else pytest.approx(whole, rel=1e-3))


def test_a_step_that_is_skipped_spoils_the_averages() -> None:
    noise, norms = NoiseScale(1), iter([1.0, 0.8, math.nan, math.inf, 2.0, 1.5])

    def measured() -> dict[str, torch.Tensor]:
        pair = noise.measure(
            ([], []), 10, 30, lambda _: torch.zeros(()), lambda: torch.tensor(next(norms))
        )
        return pair[1]

    first, skipped, third = measured(), measured(), measured()
    assert first["noise/critical_batch"] == first["noise/trace"] / first["noise/gradient_square"]
    assert skipped["noise/critical_batch"] == first["noise/critical_batch"]
    assert third["noise/critical_batch"].isfinite()
    assert third["noise/critical_batch"] != first["noise/critical_batch"]
