"""From which length on a ring's messages hide behind its attention."""

from dataclasses import replace
from pathlib import Path

import pytest
from ring.overlap_page import page

from ringshard.config.overlap import least_tokens, warning
from ringshard.config.schema.description import Description
from ringshard.config.schema.hardware import Hardware
from ringshard.config.schema.job import Job
from ringshard.config.schema.precision import Dtype

LLAMA3_8B = Description(
    model_type="llama", vocab_size=128_256, layers=32, hidden=4096, heads=32, kv_heads=8,
    head_dim=128, max_positions=8192, learned_positions=False, parameters=8_030_261_248,
    parameters_without_embeddings=6_979_588_096, matmul_parameters=7_504_924_672, tied=False,
    dropouts={}, sliding_window=None, sliding_layers=0,
)  # fmt: skip


def job(cp: int, seq_len: int, **links: float) -> Job:
    found = Job(hardware=Hardware(processes_per_node=8, link_gbytes_per_s=links))
    found.hardware.peak_tflops = {"bf16": 1000.0, "fp32": 100.0}
    found.precision.compute = Dtype.bf16
    found.parallelism.cp, found.data.seq_len = cp, seq_len
    return found


@pytest.mark.parametrize(
    ("cp", "heads", "compute", "least"),
    [
        (8, 32, Dtype.bf16, 667),  # 2.4 · 1/4 · (500e12 / 450e9), backward
        (16, 32, Dtype.bf16, 6000),  # 2.4 · 1/4 · (500e12 / 50e9): across nodes
        (16, 8, Dtype.bf16, 24_000),  # as many key heads as query heads
        (16, 32, Dtype.fp32, 1000),  # 4 · 1/4 · (50e12 / 50e9), forward
    ],
)
def test_the_least_tokens_of_a_rank(cp: int, heads: int, compute: Dtype, least: int) -> None:
    found = job(cp, 8192, node=450, network=50)
    found.precision.compute = compute
    assert least_tokens(found, replace(LLAMA3_8B, heads=heads)) == least


def test_a_ring_on_the_wrong_side_is_told() -> None:
    told = warning(job(16, 8192, node=450, network=50), LLAMA3_8B)
    assert told and "parallelism.cp=16 leaves 512 tokens" in told and "below 6,000" in told


@pytest.mark.parametrize(
    "quiet", [job(1, 128, node=450), job(16, 131_072, network=50), job(16, 128), job(8, 128)]
)
def test_nothing_is_told_of_one_that_is_fast_or_not_known(quiet: Job) -> None:
    assert warning(quiet, LLAMA3_8B) is None


def test_the_page_is_up_to_date() -> None:
    text = (Path(__file__).parents[2] / "docs/overlap.md").read_text(encoding="utf-8")
    assert text == page(), "PYTHONPATH=platform:tests python -m ring.overlap_page > docs/overlap.md"
