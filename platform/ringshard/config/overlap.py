"""Whether the hops of a ring hide behind its attention: from sizes, before anything is started.

At a step of a zigzag ring a rank of c tokens computes c²/2 pairs of 4·Hq·D FLOPs, forward, and 2.5
times as many operations backward (FlashAttention-2, arXiv:2307.08691), while 2·c·Hkv·D numbers
travel, and backward as many gradients in fp32 besides. With F the FLOP/s of the kernel, B the
byte/s of the link and b the bytes of a number it hides where

    forward  c ≥ b · (Hkv / Hq) · F / B        backward  c ≥ (2·b + 8) / 5 · (Hkv / Hq) · F / B
"""

from ringshard.config.schema.description import Description
from ringshard.config.schema.job import Job
from ringshard.config.schema.precision import Dtype

KERNEL_SHARE = 0.5
"""FLOP/s of a flash kernel over the peak of the device: FlashAttention-2 reaches 0.35 to 0.4 on an
H100, FlashAttention-3 up to 0.75 (arXiv:2407.08608)."""


def flops_per_byte(job: Job) -> float:
    """F / B of the slowest link of a ring; 0 where peak or link is not known.

    Ranks of a ring are neighbours: all rings stay in their node where whole ones fill it.
    """
    hardware = job.hardware
    link = "network" if hardware.processes_per_node % job.parallelism.cp else "node"
    speed = hardware.link_gbytes_per_s.get(link, 0.0)
    peak = hardware.peak_tflops.get(job.precision.compute.name, 0.0)
    return KERNEL_SHARE * peak * 1e12 / (speed * 1e9) if speed else 0.0


def least_tokens(job: Job, model: Description) -> int:
    """Tokens of a rank from which on all hops hide; 0 where it is not known."""
    size = 2 if job.precision.compute is Dtype.bf16 else 4
    bytes_per_pair = max(size, (2 * size + 8) / 5)
    return round(bytes_per_pair * model.kv_heads / model.heads * flops_per_byte(job))


def warning(job: Job, model: Description) -> str | None:
    """One sentence where the ring would wait for its messages."""
    cp, length = job.parallelism.cp, job.data.seq_len
    least = least_tokens(job, model)
    if cp == 1 or length >= cp * least:
        return None
    return (
        f"parallelism.cp={cp} leaves {length // cp:,} tokens to a process, and keys and values take"
        f" longer to travel than attention to compute below {least:,}: a smaller cp or a longer"
        " data.seq_len is faster, if memory allows"
    )
