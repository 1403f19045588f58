"""In which numbers the model computes and the gradients are summed."""

from dataclasses import dataclass
from enum import Enum


class Dtype(Enum):
    """Floating-point format."""

    fp32 = "fp32"
    bf16 = "bf16"


@dataclass
class Precision:
    """Optimizer state stays in fp32; computation, communication and weights may be shorter."""

    compute: Dtype = Dtype.fp32
    """Format of the forward and backward pass."""
    weights: Dtype = Dtype.fp32
    """Format of the weights themselves; bf16 halves them, without a longer copy: each step is
    rounded at random, with the mean of the exact one. With precision.compute=bf16."""
    reduce: Dtype = Dtype.fp32
    """Format in which gradients are summed over the processes."""
