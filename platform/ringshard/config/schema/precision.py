"""In which numbers the model computes and the gradients are summed."""

from dataclasses import dataclass
from enum import Enum


class Dtype(Enum):
    """Floating-point format."""

    fp32 = "fp32"
    bf16 = "bf16"


@dataclass
class Precision:
    """Weights and optimizer state stay in fp32; only computation and communication may be
    shorter."""

    compute: Dtype = Dtype.fp32
    """Format of the forward and backward pass."""
    reduce: Dtype = Dtype.fp32
    """Format in which gradients are summed over the processes."""
