"""docs/overlap.md: from which length on a ring's messages hide behind its attention.

`PYTHONPATH=platform:tests python -m ring.overlap_page > docs/overlap.md`
"""

from itertools import product
from pathlib import Path

import yaml

from ringshard.config.overlap import KERNEL_SHARE, least_tokens
from ringshard.config.schema.description import Description
from ringshard.config.schema.hardware import Hardware
from ringshard.config.schema.job import Job
from ringshard.config.schema.precision import Dtype

HARDWARE = Path(__file__).parents[2] / "conf/hardware"
MACHINES = ("slurm_h100", "slurm_h200", "slurm_b200")
GROUPS = {"Hkv = Hq": 1, "Hkv = Hq / 4": 4, "Hkv = Hq / 8": 8}

HEAD = f"""# When a ring is free

Made by `PYTHONPATH=platform:tests python -m ring.overlap_page > docs/overlap.md`; a test keeps it
up to date. Computed, not measured: nothing here has been run on a GPU.

At each step of the ring a process sends the keys and values it holds to the next one, and computes
attention of its own queries over them meanwhile. With c tokens to a process, one document and the
zigzag layout, a step is c²/2 (query, key) pairs of 4·Hq·D operations forward and 2.5 times as many
backward; 2·c·Hkv·D numbers of b bytes travel, and backward the gradients in fp32 besides. So the
messages are hidden if

    forward   c ≥ b · (Hkv / Hq) · F / B
    backward  c ≥ (2·b + 8) / 5 · (Hkv / Hq) · F / B

F: operations per second of the attention kernel, taken as {KERNEL_SHARE:g} of the device's peak; B:
bytes per second of one device over the slowest link of the ring, `hardware.link_gbytes_per_s`: that
of a node while cp is at most `hardware.processes_per_node`, else the network's. A job on the wrong
side is told when it is started, and `parallelism.cp_transport=auto` reckons with the link.

Least tokens to a process in bf16, forward and backward:

| hardware | link [GB/s] | {" | ".join(GROUPS)} |
|---|---|{"---|" * len(GROUPS)}
"""


def page() -> str:
    """The page's text."""
    rows = product(MACHINES, ("node", "network"))
    return HEAD + "".join(_row(machine, link) for machine, link in rows)


def _row(machine: str, link: str) -> str:
    job = _job(machine, link)
    speed = job.hardware.link_gbytes_per_s[link]
    least = [f"{least_tokens(job, _heads(group)):,}" for group in GROUPS.values()]
    return f"| `{machine}` | {link}, {speed:g} | {' | '.join(least)} |\n"


def _job(machine: str, link: str) -> Job:
    """One whose ring stays in a node or does not."""
    given = yaml.safe_load((HARDWARE / f"{machine}.yaml").read_text(encoding="utf-8"))
    known = ("processes_per_node", "peak_tflops", "link_gbytes_per_s")
    job = Job(hardware=Hardware(**{name: given[name] for name in known}))
    job.parallelism.cp = job.hardware.processes_per_node * (1 if link == "node" else 2)
    job.precision.compute = Dtype.bf16
    return job


def _heads(group: int) -> Description:
    return Description(
        model_type="", vocab_size=0, layers=0, hidden=0, heads=32, kv_heads=32 // group,
        head_dim=0, max_positions=None, learned_positions=False, parameters=0,
        parameters_without_embeddings=0, matmul_parameters=0, tied=False, dropouts={},
        sliding_window=None, sliding_layers=0,
    )  # fmt: skip


if __name__ == "__main__":
    print(page(), end="")
