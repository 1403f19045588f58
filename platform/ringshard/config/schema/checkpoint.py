"""When the state of a run is saved."""

from dataclasses import dataclass


@dataclass
class Checkpoint:
    """Saved with torch.distributed.checkpoint: model, optimizer, position."""

    every: int = 100
    """Interval [steps]; 0: only at the end."""
    at_end: bool = True
    """Whether the last step is saved."""
    keep: int = 3
    """Newest checkpoints that are kept; 0: all."""
