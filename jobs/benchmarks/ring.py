"""Ring attention in CPU seconds: balance of work, cost over one process, bytes, an emulated ring.

CPU seconds are those of all threads of a rank, forward and backward; the cores may be shared.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import torch._dynamo  # or each forked rank imports it, at its first operator
import torch.distributed as dist
from benchmarks import ring_emulated, ring_memory
from ranks import run_ranks

from ringshard.parallel.ring.attention import RingState, ring_attention
from ringshard.parallel.ring.documents import Ints
from ringshard.parallel.ring.group import Ring, open_ring
from ringshard.parallel.ring.kernels import KERNELS, Kernel
from ringshard.parallel.ring.layout import LAYOUTS, Layout
from ringshard.parallel.ring.plan import build_plan, choose_transport, imbalance, predict_work

SHAPE = ring_emulated.CPU
ROUNDS = 3


@dataclass(frozen=True)
class Setting:
    """One computation on a number of ranks."""

    ranks: int
    length: int
    documents: str = "one document"
    layout: str = "zigzag"
    transport: str = "auto"

    def cut(self) -> tuple[Layout, list[Ints]]:
        """The layout, and bounds of the only row."""
        rows = [DOCUMENTS[self.documents](self.length)]
        return LAYOUTS[self.layout](rows, self.ranks), rows


@dataclass(frozen=True)
class Measured:
    """What one rank spent."""

    cpu_s: float
    kernel_s: float
    sent: int


def _packed(length: int) -> Ints:
    sizes = np.random.default_rng(0).lognormal(np.log(length / 16), 1.0, 64).astype(np.int64) + 1
    ends = np.cumsum(sizes)
    return np.concatenate([[0], ends[ends < length], [length]]).astype(np.int64)


DOCUMENTS: dict[str, Callable[[int], Ints]] = {
    "one document": lambda length: np.array([0, length], dtype=np.int64),
    "packed": _packed,
}


def run() -> list[dict[str, Any]]:
    """One row per measurement: value, and what it is compared with."""
    return [*_balance(), *_overhead(), *_bytes(), *ring_memory.run(), *ring_emulated.run(),
            *_accelerate()]  # fmt: skip


def _row(measure: str, case: str, value: float, against: str) -> dict[str, Any]:
    return {"measure": measure, "case": case, "value": round(value, 4), "against": against}


def _balance() -> Iterator[dict[str, Any]]:
    """CPU seconds of the busiest of 4 ranks over the mean."""
    for documents in DOCUMENTS:
        for layout in LAYOUTS:
            setting = Setting(4, 4096, documents, layout)
            seconds = [rank.cpu_s for rank in measure(setting)]
            layout_of, rows = setting.cut()
            predicted = imbalance(predict_work(layout_of, rows))
            yield _row(
                "CPU s per rank, max / mean",
                f"{documents}, {layout}, 4 ranks, {setting.length} tokens",
                max(seconds) / float(np.mean(seconds)),
                f"{predicted:.3f} predicted",
            )


def _overhead() -> Iterator[dict[str, Any]]:
    """CPU seconds of all ranks over those of one, and how much is not the kernels'."""
    one = measure(Setting(1, 8192))[0]
    yield _row("CPU s", "1 rank, 8192 tokens", one.cpu_s, f"kernels {one.kernel_s:.2f} s")
    for ranks in (2, 4):
        every = measure(Setting(ranks, 8192))
        total, kernels = (sum(getattr(r, name) for r in every) for name in ("cpu_s", "kernel_s"))
        yield _row(
            "CPU s of all ranks / of one",
            f"{ranks} ranks, 8192 tokens, zigzag",
            total / one.cpu_s,
            f"kernels {kernels / one.kernel_s:.3f}; merging, copies, messages and Python "
            f"{(total - kernels) / total:.1%} of all",
        )


def _bytes() -> Iterator[dict[str, Any]]:
    """What a rank sends, over (W - 1) hops of KV forward, W - 1 of KV and W of dKV backward."""
    for ranks in (2, 4):
        for transport in ("ring", "allgather"):
            sent = measure(Setting(ranks, 1024, transport=transport), rounds=1)[0].sent
            hop = 2 * (1024 // ranks) * SHAPE.kv_heads * SHAPE.width * 4
            least = hop * (2 * (ranks - 1) + ranks)
            yield _row(
                "bytes sent / least of a ring", f"{ranks} ranks, {transport}", sent / least,
                f"{least} bytes",
            )  # fmt: skip


def _accelerate() -> Iterator[dict[str, Any]]:
    """Its context parallelism is torch's own, of which no kernel is one for CPU."""
    if find_spec("accelerate"):
        yield {
            "measure": "accelerate's context parallelism",
            "case": "2 ranks, CPU",
            "value": "does not run",
            "against": run_ranks(2, _refusal)[0],
        }


def _refusal() -> str:
    from accelerate import Accelerator
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import FullyShardedDataParallelPlugin

    names = {"RANK": dist.get_rank(), "LOCAL_RANK": dist.get_rank(), "WORLD_SIZE": 2,
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1}  # fmt: skip  # the group exists already
    os.environ.update({name: str(value) for name, value in names.items()})
    try:
        Accelerator(
            cpu=True,
            parallelism_config=ParallelismConfig(cp_size=2),
            fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2),
        )
    except ValueError as error:
        return str(error)
    raise RuntimeError("accelerate cuts sequences on CPU by now: compare with it")


def measure(setting: Setting, rounds: int = ROUNDS) -> list[Measured]:
    """The best round of each forked rank."""
    return run_ranks(setting.ranks, _measure, setting, rounds)


def _measure(setting: Setting, rounds: int) -> Measured:
    ring = open_ring([range(setting.ranks)], torch.device("cpu"), timedelta(seconds=120))
    clock = _Clock(KERNELS["cpu_flash"])
    KERNELS["timed"] = clock.kernel
    step = _step(setting, ring)
    step()  # first use of everything
    return min((_timed(step, ring, clock) for _ in range(rounds)), key=lambda found: found.cpu_s)


def _timed(step: Callable[[], None], ring: Ring, clock: "_Clock") -> Measured:
    dist.barrier()
    ring.bytes_sent, clock.seconds, start = 0, 0.0, time.process_time()
    step()
    return Measured(time.process_time() - start, clock.seconds, ring.bytes_sent)


def _step(setting: Setting, ring: Ring) -> Callable[[], None]:
    layout, rows = setting.cut()
    work = predict_work(layout, rows)
    transport = setting.transport if setting.transport != "auto" else choose_transport(work)
    plan = build_plan(layout, rows, ring.rank).to_tensor()
    state = RingState(plan, ring.name, transport, "timed")
    q, k, v, dout = ring_emulated.tensors(layout.local_length, SHAPE, ring.rank)
    leaves = [t.requires_grad_() for t in (q, k, v)]

    def step() -> None:
        torch.autograd.grad(ring_attention(q, k, v, state, SHAPE.width**-0.5), leaves, dout)

    return step


class _Clock:
    """CPU seconds inside a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.seconds = 0.0
        self.kernel = replace(
            kernel, forward=self._within(kernel.forward), backward=self._within(kernel.backward)
        )

    def _within(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start = time.thread_time()
            result = function(*args)
            self.seconds += time.thread_time() - start
            return result

        return timed


if __name__ == "__main__":
    for row in run():
        print(row)
