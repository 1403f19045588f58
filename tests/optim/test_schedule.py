"""Shapes of the learning rate."""

import math

import pytest

from ringshard.config.length import Length
from ringshard.config.schema.job import Job
from ringshard.config.schema.optimizer import AdamW, MuonHyperball, Optimizer, Scaling
from ringshard.config.schema.schedule import (
    Constant,
    Cosine,
    DecayShape,
    Linear,
    Power,
    Schedule,
    Sqrt,
    Wsd,
)
from ringshard.config.schema.train import Train
from ringshard.optim import schedule as of
from ringshard.train.session import _rate

ALL = [
    Constant(warmup_steps=0),
    Linear(warmup_steps=0, floor=0.1),
    Cosine(warmup_steps=0, floor=0.1),
    Sqrt(warmup_steps=0, floor=0.1),
    Power(warmup_steps=0, floor=0.1),
    Wsd(warmup_steps=0, floor=0.1, decay_share=0.25, shape=DecayShape.sqrt),
    Wsd(warmup_steps=0, floor=0.1, decay_share=0.25),
]


def factor(schedule: Schedule, position: float, total: int) -> float:
    """In a run of `total` steps of 1,000 tokens each."""
    return of.factor(schedule, position, Length(10, 1000, total, None))


def nano_gpt(it: int, lr: float, min_lr: float, warmup: int, decay: int) -> float:
    """nanoGPT's train.py, get_lr."""
    if it < warmup:
        return lr * (it + 1) / (warmup + 1)
    if it > decay:
        return min_lr
    coeff = 0.5 * (1.0 + math.cos(math.pi * (it - warmup) / (decay - warmup)))
    return min_lr + coeff * (lr - min_lr)


def test_cosine_is_nanogpts() -> None:
    schedule = Cosine(warmup_steps=100, floor=0.1)
    for it in range(2001):
        expected = nano_gpt(it, 1e-3, 1e-4, 100, 2000)
        assert 1e-3 * factor(schedule, it, 2000) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: s.name)
def test_warmup_rises_in_equal_steps_to_the_peak(schedule: Schedule) -> None:
    schedule = type(schedule)(warmup_steps=4)
    rates = [factor(schedule, step, 100) for step in range(5)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: s.name)
def test_without_warmup_the_first_step_has_the_peak_rate(schedule: Schedule) -> None:
    assert factor(schedule, 0, 100) == 1.0


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: s.name)
def test_warmup_takes_a_tenth_of_the_run_where_nothing_is_said(schedule: Schedule) -> None:
    said, unsaid = type(schedule)(warmup_steps=10), type(schedule)()
    assert [factor(unsaid, s, 100) for s in range(100)] == [
        factor(said, s, 100) for s in range(100)
    ]


@pytest.mark.parametrize("schedule", ALL[1:], ids=lambda s: s.name)
def test_the_floor_is_reached_at_the_end_and_kept(schedule: Schedule) -> None:
    assert factor(schedule, 99, 100) > factor(schedule, 100, 100) == pytest.approx(0.1)
    assert factor(schedule, 120, 100) == pytest.approx(0.1)


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: s.name)
def test_the_rate_never_rises_after_warmup(schedule: Schedule) -> None:
    rates = [factor(schedule, step / 3, 100) for step in range(301)]
    assert rates == sorted(rates, reverse=True)


def test_halfway_points() -> None:
    assert factor(Constant(warmup_steps=0), 50, 100) == 1.0
    assert factor(Linear(warmup_steps=0), 50, 100) == pytest.approx(0.5)
    assert factor(Cosine(warmup_steps=0, floor=0.2), 50, 100) == pytest.approx(0.6)
    assert factor(Sqrt(warmup_steps=0, floor=0.2), 25, 100) == pytest.approx(0.6)
    assert factor(Power(warmup_steps=0, floor=0.2, exponent=2), 50, 100) == pytest.approx(0.4)


def test_wsd_is_flat_until_its_decay() -> None:
    schedule = Wsd(warmup_steps=10, decay_share=0.2, floor=0.0)
    assert [factor(schedule, step, 100) for step in (10, 50, 80)] == [1.0] * 3
    assert factor(schedule, 90, 100) == pytest.approx(0.5)


def test_wsd_without_decay_is_constant() -> None:
    assert factor(Wsd(warmup_steps=0, decay_share=0.0), 99, 100) == 1.0


def test_wsd_falls_by_the_root_of_its_decay() -> None:
    schedule = Wsd(warmup_steps=0, decay_share=0.2, shape=DecayShape.sqrt)
    assert factor(schedule, 85, 100) == pytest.approx(0.5)


def test_warmup_in_tokens_is_not_the_same_in_steps() -> None:
    said, tokens = Cosine(warmup_steps=7), Cosine(warmup_tokens=7000)
    assert [factor(tokens, s, 100) for s in range(100)] == [
        factor(said, s, 100) for s in range(100)
    ]


def test_the_rate_follows_the_batch_otherwise_than_asked() -> None:
    def peak(rule: Scaling, batch: int) -> float:
        return of.peak(AdamW(lr=1e-3, lr_scaling=rule, lr_reference_batch=16), batch)

    assert [peak(Scaling.none, batch) for batch in (4, 16, 64)] == [1e-3] * 3
    assert [peak(Scaling.linear, b) for b in (4, 16, 64)] == pytest.approx([2.5e-4, 1e-3, 4e-3])
    assert [peak(Scaling.sqrt, b) for b in (4, 16, 64)] == pytest.approx([5e-4, 1e-3, 2e-3])


SQRT = {"lr_scaling": Scaling.sqrt, "lr_reference_batch": 16}


@pytest.mark.parametrize(
    ("optimizer", "told"),
    [
        (AdamW(lr=3e-3), "0.003 at its peak"),
        (AdamW(lr=3e-3, **SQRT), "0.006 at its peak (0.003 × √(64 / 16))"),
        (MuonHyperball(**SQRT), "0.04 at its peak (0.02 × √(64 / 16)); AdamW's 0.006"),
    ],
)
def test_a_run_tells_another_rate_than_it_trains_at(optimizer: Optimizer, told: str) -> None:
    assert _rate(Job(optimizer=optimizer, train=Train(global_batch=64))) == told


def test_a_run_that_is_all_warmup_has_a_rate() -> None:
    assert factor(Cosine(warmup_steps=10), 9, 10) == pytest.approx(10 / 11)
