"""Speed of the trainer over bare PyTorch, Fabric and accelerate: one process, one thread."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.loops import BATCH, STEPS, setting

from ringshard.launch.environment import rank_environment

ROUNDS = 12
PACKAGES = {"fabric": "lightning_fabric", "accelerate": "accelerate"}
BARE, BARE_TUNED, OURS = "bare loop", "bare loop, environment of a rank", "ringshard"


def run() -> list[dict[str, Any]]:
    """One row per contender: tokens/s of the best round, and ratios to the bare loop, of rounds in
    which they take turns.

    Each is a process of its own, with the environment its user would give it; ours has that of a
    rank, which the bare loop is also given. The cores are shared, so the ratios are of CPU seconds
    (all threads of the process; the trainer's reading thread too) as well as of wall time.
    `gemm_share`: model FLOP/s of the best round over the GEMM peak of one thread, measured in the
    same run.
    """
    names = [
        BARE,
        BARE_TUNED,
        OURS,
        *(name for name, package in PACKAGES.items() if find_spec(package)),
    ]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        job = setting(Path(folder))  # the data are prepared once
        tokens = STEPS * BATCH * job.data.seq_len
        loops = {name: stack.enter_context(_loop(name, folder)) for name in names}
        peak = _answer(loops[OURS])
        rounds = _take_turns(loops)
    return [
        {
            "contender": name,
            "tokens_per_s": tokens / min(r["wall"] for r in rounds[name]),
            "over_bare_cpu": _ratio(rounds, name, "cpu"),
            "over_bare_wall": _ratio(rounds, name, "wall"),
            "gemm_share": tokens
            / min(r["wall"] for r in rounds[name])
            * peak["flops_per_token"]
            / peak["gemm_flops_per_s"],
        }
        for name in names
    ]


Numbers = dict[str, float]


def _take_turns(loops: dict[str, Any]) -> dict[str, list[Numbers]]:
    """Another one begins each round; the first round warms up."""
    rounds: dict[str, list[Numbers]] = {name: [] for name in loops}
    order = deque(loops)
    for _ in range(1 + ROUNDS):
        for name in order:
            loops[name].stdin.write("\n")
            loops[name].stdin.flush()
            rounds[name].append(_answer(loops[name]))
        order.rotate()
    return {name: found[1:] for name, found in rounds.items()}


@contextmanager
def _loop(name: str, folder: str) -> Iterator[Any]:
    job = setting(Path(folder))
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    if name in (BARE_TUNED, OURS):
        environment |= rank_environment(job.hardware)
    command = [sys.executable, str(Path(__file__).with_name("loops.py")), name, folder]
    with subprocess.Popen(
        command, env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        if name != OURS:
            _answer(process)
        yield process
        process.stdin.close()


def _answer(process: Any) -> Numbers:
    for line in process.stdout:
        if line.startswith("{"):
            numbers: Numbers = json.loads(line)
            return numbers
    raise RuntimeError(f"a contender ended: {process.args}")


def _ratio(rounds: dict[str, list[Numbers]], name: str, clock: str) -> float:
    pairs = zip(rounds[BARE], rounds[name], strict=True)
    return statistics.median(bare[clock] / own[clock] for bare, own in pairs)
