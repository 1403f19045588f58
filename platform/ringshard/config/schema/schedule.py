"""The learning rate over the run, as a factor of `optimizer.lr`."""

from dataclasses import dataclass
from enum import Enum


class DecayShape(Enum):
    """How the rate falls in a final decay."""

    linear = "linear"
    sqrt = "sqrt"


@dataclass
class Schedule:
    """Linear warm-up, then the shape named here."""

    name: str = "???"
    """Which schedule: constant, linear, cosine, sqrt, power or wsd."""
    warmup_steps: int | None = None
    """Length w of the linear warm-up, in which step i has (i + 1) / (w + 1) of the peak [steps];
    null: `warmup_tokens`, or a tenth of the run."""
    warmup_tokens: int | None = None
    """The same in tokens of full steps [target tokens]; with warmup_steps=null."""


@dataclass
class Constant(Schedule):
    """The peak rate until the end."""

    name: str = "constant"
    """constant"""


@dataclass
class Linear(Schedule):
    """A straight line from the peak to the floor."""

    name: str = "linear"
    """linear"""
    floor: float = 0.0
    """Rate at the end [share of the peak]."""


@dataclass
class Cosine(Schedule):
    """Half a cosine from the peak to the floor (Loshchilov & Hutter 2017, arXiv:1608.03983)."""

    name: str = "cosine"
    """cosine"""
    floor: float = 0.1
    """Rate at the end [share of the peak]."""


@dataclass
class Sqrt(Schedule):
    """1 - √progress, from the peak to the floor (Hägele et al. 2024, arXiv:2405.18392)."""

    name: str = "sqrt"
    """sqrt"""
    floor: float = 0.0
    """Rate at the end [share of the peak]."""


@dataclass
class Power(Schedule):
    """(1 - progress)^exponent, from the peak to the floor."""

    name: str = "power"
    """power"""
    exponent: float = 2.0
    """1 is linear; the larger, the earlier the rate falls."""
    floor: float = 0.0
    """Rate at the end [share of the peak]."""


@dataclass
class Wsd(Schedule):
    """Warm-up, stable, decay: the peak rate, then a decay at the end (Hu et al. 2024,
    arXiv:2404.06395)."""

    name: str = "wsd"
    """wsd"""
    decay_share: float = 0.2
    """Length of the final decay [share of the run]."""
    shape: DecayShape = DecayShape.linear
    """The final decay: a straight line, or 1 - √progress (sqrt)."""
    floor: float = 0.0
    """Rate at the end [share of the peak]."""


SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "linear": Linear,
    "cosine": Cosine,
    "sqrt": Sqrt,
    "power": Power,
    "wsd": Wsd,
}
