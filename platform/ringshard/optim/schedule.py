"""The learning rate over the run, as a function of position alone."""

import math

from ringshard.config.schema.schedule import Constant, Cosine, Linear, Schedule, Wsd


def factor(schedule: Schedule, position: float, total: float) -> float:
    """Learning rate [share of the peak] of the step that starts at `position`.

    position: steps done before [0 … total); total: length of the run; both may be fractions of
    steps, as with a budget of tokens. Warm-up step i of w has (i + 1) / (w + 1): it neither wastes
    a step at zero nor reaches the peak before its end (nanoGPT, `get_lr`).
    """
    warmup = total / 10 if schedule.warmup_steps is None else schedule.warmup_steps
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
        case Wsd():
            decay = schedule.decay_share * total
            left = max(total - position, 0.0)
            return _between(schedule.floor, left / decay if left < decay else 1.0)
    raise AssertionError(f"schedule {schedule.name} has no shape")


def _between(floor: float, share: float) -> float:
    """`floor` at 0, 1 at 1."""
    return floor + share * (1 - floor)
