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

    The backward pass of a block holds about 4/3 of what the block keeps beside that, as measured.
    """
    kept = kept_by_block(description)
    held = kept_forward(job, description) + 4 / 3 * kept
    if job.parallelism.activation_checkpoint is ActivationCheckpoint.block:
        held += kept
    tokens = job.train.rows_at_once * job.data.seq_len / mesh.ring.size
    logits = 2 * job.model.head_chunk * description.vocab_size
    gradients = 4 * description.parameters / mesh.fsdp.size(-1)
    return float(gradients + _bytes(job) * (tokens * held + logits)) / 2**30


def kept_forward(job: Job, description: Description) -> float:
    """Numbers that all blocks keep of each token until the backward pass: their input and
    attention's output alone where they are recomputed."""
    if job.parallelism.activation_checkpoint is ActivationCheckpoint.block:
        return float(2 * description.hidden * description.layers)
    return kept_by_block(description) * description.layers


def kept_by_block(description: Description) -> float:
    """Numbers that a block keeps of each token: 4/3 · Σ out + 5 · hidden, as counted and measured.

    These are the inputs of its products, and what norms, the gate and attention need. Σ out, over
    its products, is estimated by its weights / hidden size.
    """
    head = description.vocab_size * description.hidden
    block = (description.matmul_parameters - head) / description.layers
    return float(4 / 3 * block / description.hidden + 5 * description.hidden)


def _bytes(job: Job) -> int:
    return 2 if job.precision.compute is Dtype.bf16 else 4
