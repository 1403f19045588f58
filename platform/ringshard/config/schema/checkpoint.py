"""When the state of a run is saved, and how it is read."""

from dataclasses import dataclass
from enum import Enum


class Verify(Enum):
    """What of a checkpoint is compared with its digests before it is used."""

    size = "size"
    shard = "shard"
    full = "full"


@dataclass
class Checkpoint:
    """Saved with torch.distributed.checkpoint: model, optimizer, position."""

    every: int = 100
    """Interval [steps]; 0: only at the end."""
    at_end: bool = True
    """Whether the last step is saved."""
    keep: int = 3
    """Newest checkpoints that are kept; 0: all."""
    keep_every: int = 0
    """Each checkpoint of a multiple of it is kept as well [steps]; 0: none."""
    keep_best: bool = True
    """Whether the one with the lowest validation loss at its step is kept as well."""
    asynchronous: bool = True
    """Whether training goes on while a checkpoint is written, which takes the memory of a copy."""
    max_failed_saves: int = 3
    """Saves in a row that may fail, of a full disk for example, before the run fails; tried again
    when the next one is due, and at the end at once."""
    verify: Verify = Verify.shard
    """size: of all files; shard: the bytes that each process reads; full: all bytes."""
