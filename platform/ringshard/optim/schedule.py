"""The learning rate over the run, as a function of position alone."""

import math

from ringshard.config.length import Length
from ringshard.config.schema.optimizer import Optimizer, Scaling
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


def peak(optimizer: Optimizer, global_batch: int) -> float:
    """The peak learning rate at a batch of `global_batch` [`train.batch_unit`].

    All groups follow it with their ratios. Processes and micro-batches don't count.
    """
    reference = optimizer.lr_reference_batch
    if reference is None or optimizer.lr_scaling is Scaling.none:
        return optimizer.lr
    ratio = global_batch / reference
    return optimizer.lr * (ratio if optimizer.lr_scaling is Scaling.linear else math.sqrt(ratio))


def factor(schedule: Schedule, position: float, length: Length) -> float:
    """Learning rate [share of the peak] of the step that starts at `position` in a run of `length`.

    position: steps done before, or fractions of steps with a budget of tokens. Warm-up step i of w
    has (i + 1) / (w + 1): it neither wastes a step at zero nor reaches the peak before its end
    (nanoGPT, `get_lr`).
    """
    total, warmup = length.nominal_steps, length.warmup(schedule)
    if position < warmup:
        return (position + 1) / (warmup + 1)
    progress = min((position - warmup) / (total - warmup), 1.0) if total > warmup else 1.0
    match schedule:
        case Constant():
            return 1.0
        case Linear():
            return _between(schedule.floor, 1 - progress)
        case Cosine():
            return _between(schedule.floor, 0.5 * (1 + math.cos(math.pi * progress)))
        case Sqrt():
            return _between(schedule.floor, 1 - math.sqrt(progress))
        case Power():
            return _between(schedule.floor, (1 - progress) ** schedule.exponent)
        case Wsd():
            decay = schedule.decay_share * total
            left = max(total - position, 0.0)
            share = left / decay if left < decay else 1.0
            linear = schedule.shape is DecayShape.linear
            return _between(schedule.floor, share if linear else 1 - math.sqrt(1 - share))
    raise AssertionError(f"schedule {schedule.name} has no shape")


def _between(floor: float, share: float) -> float:
    """`floor` at 0, 1 at 1."""
    return floor + share * (1 - floor)
