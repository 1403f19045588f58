"""The loop: how long, how much a step, how often it looks up."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class BatchUnit(Enum):
    """What `train.global_batch` counts."""

    sequences = "sequences"
    tokens = "tokens"


@dataclass
class Train:
    """Length, batch and intervals of a run."""

    seed: int = 1
    """Seed of the initial weights and of the order of the data."""
    steps: int | None = None
    """Length of the run [optimizer steps]; set this or `tokens`."""
    tokens: int | None = None
    """Length of the run [target tokens]: exactly so many are trained on."""
    global_batch: int = 16
    """Size of one optimizer step over all processes [`batch_unit`]."""
    batch_unit: BatchUnit = BatchUnit.sequences
    """sequences, or tokens (a multiple of data.seq_len)."""
    batch_ramp: list[int] = field(default_factory=list)
    """Batches of the first `batch_ramp_steps` steps, each for an equal part of them, before
    `global_batch`; empty: none [`batch_unit`]."""
    batch_ramp_steps: int = 0
    """Length of the ramp [steps]."""
    micro_batch: int | None = None
    """Sequences in one forward pass of one process; accumulation is derived; null: the largest size
    up to 8 that divides what a process has of any step [sequences]."""
    grad_clip: float = 1.0
    """Largest global gradient norm; 0: no clipping."""
    noise_scale_every: int = 0
    """Interval of measuring the gradient noise scale, the critical batch, at which a larger one
    stops to help; a measured step makes its forward and backward pass twice; 0: never [steps]."""
    log_every: int = 10
    """Interval of logged metrics [steps]."""
    eval_every: int = 100
    """Interval of evaluation on the validation split; 0: only at the end [steps]."""
    eval_sequences: int = 128
    """Sequences of one evaluation, the same ones each time; 0: the whole split [sequences]."""
    overfit_batch: bool = False
    """Whether every step trains on the first batch (a debugging aid)."""
    detect_anomaly: bool = False
    """Whether autograd names the forward operation behind a non-finite gradient (slow)."""
    hooks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Hooks registered by user modules: name -> arguments."""

    @property
    def rows_at_once(self) -> int:
        """`micro_batch` of a completed job [sequences]."""
        assert self.micro_batch is not None
        return self.micro_batch
