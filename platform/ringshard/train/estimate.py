"""What a step will take, told before the first one: from sizes, and from the first rows."""

from itertools import pairwise

from ringshard.config.schema.description import Description
from ringshard.config.schema.job import Job
from ringshard.config.schema.parallelism import ActivationCheckpoint
from ringshard.config.schema.precision import Dtype
from ringshard.parallel.mesh import Mesh
from ringshard.train.batches import Readable
from ringshard.train.recorder import Peak, peak_memory_gib

SAMPLE = 64
"""Rows that are looked at."""


def documents(rows: Readable, count: int, seq_len: int) -> list[int]:
    """Lengths of the documents of the first `count` rows [tokens], without those that nothing is
    learned of, as padding."""
    read = rows.read(0, min(count, SAMPLE))
    lengths = [
        int(end - start)
        for mask, bounds in zip(read.loss_mask, read.bounds, strict=True)
        for start, end in pairwise(bounds)
        if mask[start:end].any()
    ]
    return lengths or [seq_len]


def estimate(job: Job, mesh: Mesh, description: Description, peak: Peak, tokens: int) -> str:
    """Least time of a step of `tokens` tokens, and memory of a process, in words."""
    seconds = tokens * peak.flops_per_token / peak.flops_per_s
    attention = 1 - 6 * description.matmul_parameters / peak.flops_per_token
    memory = peak_memory_gib(mesh.device) + to_come_gib(job, mesh, description)
    return (
        f"a step takes {seconds:.2g} s or more ({attention:.0%} of its operations are attention), "
        f"a process about {memory:.1f} GiB"
    )


def to_come_gib(job: Job, mesh: Mesh, description: Description) -> float:
    """Memory of this process that a step adds to what is held before it: gradients and activations
    [GiB].

    A block keeps, of each token, about the inputs and outputs of its products, and twice as much
    between them (norms, rotations, the gate, attention's own): 3 · Σ (in + out) numbers, which is
    what was measured. Σ out is estimated by the block's weights / hidden size.
    """
    shards = mesh.fsdp.size(-1)
    size = 2 if job.precision.compute is Dtype.bf16 else 4
    tokens = job.train.rows_at_once * job.data.seq_len / mesh.ring.size
    head = description.vocab_size * description.hidden
    block = (description.matmul_parameters - head) / description.layers
    kept = 3 * (block / description.hidden + 2 * description.hidden)  # numbers of a token
    if job.parallelism.activation_checkpoint is ActivationCheckpoint.block:
        held = kept + 2 * description.hidden * description.layers
    else:
        held = kept * description.layers
    logits = 2 * job.model.head_chunk * description.vocab_size
    gradients = 4 * description.parameters / shards
    return float(gradients + size * (tokens * held + logits)) / 2**30
