"""How the work is divided among the processes."""

from dataclasses import dataclass
from enum import Enum


class ActivationCheckpoint(Enum):
    """What is recomputed in the backward pass instead of being kept."""

    none = "none"
    block = "block"


class Attention(Enum):
    """What computes attention."""

    ring = "ring"
    sdpa = "sdpa"


class CpLayout(Enum):
    """Which rank of a ring holds which tokens of a sequence."""

    zigzag = "zigzag"
    contiguous = "contiguous"
    balanced = "balanced"


class CpTransport(Enum):
    """How keys and values come to the ranks of a ring."""

    auto = "auto"
    ring = "ring"
    allgather = "allgather"


@dataclass
class Parallelism:
    """Degrees of the device mesh; their product is nodes × processes_per_node."""

    dp_replicate: int = 1
    """Replicas of the sharded model (HSDP) [processes]."""
    dp_shard: int = -1
    """Processes that share one copy of the model (FSDP); -1: what is left over [processes]."""
    cp: int = 1
    """Processes that share each sequence (ring context parallelism); -1: what is left over
    [processes]."""
    attention: Attention = Attention.ring
    """ring: exact over cp processes and packed documents, with cp=1 on one; sdpa: torch's own, for
    comparison and for models that ring attention refuses; neither cp nor packed documents."""
    cp_layout: CpLayout = CpLayout.zigzag
    """zigzag: equal work on long documents; balanced: dealt by the work of packed documents;
    contiguous: in order, which is unequal."""
    cp_transport: CpTransport = CpTransport.auto
    """ring: from neighbour to neighbour; allgather: at once, which holds cp times the keys; auto:
    the one that each batch is predicted to be faster with."""
    reshard_after_forward: bool = True
    """Whether a block's full weights are freed between forward and backward (less memory, more
    communication)."""
    activation_checkpoint: ActivationCheckpoint = ActivationCheckpoint.none
    """none keeps all activations, block recomputes each transformer block."""
    compile: bool = False
    """Whether each transformer block is compiled with torch.compile."""
