"""How the work is divided among the processes."""

from dataclasses import dataclass
from enum import Enum


class ActivationCheckpoint(Enum):
    """What is recomputed in the backward pass instead of being kept."""

    none = "none"
    block = "block"


@dataclass
class Parallelism:
    """Degrees of the device mesh; their product is nodes × processes_per_node."""

    dp_replicate: int = 1
    """Replicas of the sharded model (HSDP) [processes]."""
    dp_shard: int = -1
    """Processes that share one copy of the model (FSDP); -1: what is left over [processes]."""
    reshard_after_forward: bool = True
    """Whether a block's full weights are freed between forward and backward (less memory, more
    communication)."""
    activation_checkpoint: ActivationCheckpoint = ActivationCheckpoint.none
    """none keeps all activations, block recomputes each transformer block."""
    compile: bool = False
    """Whether each transformer block is compiled with torch.compile."""
