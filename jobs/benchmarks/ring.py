"""Ring attention in CPU seconds: balance of work, cost over one process, bytes, an emulated ring.

CPU seconds are those of all threads of a rank, forward and backward; the cores may be shared.
"""

import functools
import os
import time
from collections import defaultdict
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

from ringshard.parallel.ring import attention, blocks, transport, waiting
from ringshard.parallel.ring.attention import RingState, ring_attention
from ringshard.parallel.ring.documents import Ints
from ringshard.parallel.ring.group import open_ring
from ringshard.parallel.ring.kernels import KERNELS
from ringshard.parallel.ring.layout import LAYOUTS, Layout
from ringshard.parallel.ring.plan import build_plan, choose_transport, imbalance, predict_work

SHAPE = ring_emulated.CPU
ROUNDS = 9
LENGTH = 8192
PATIENCE_S = 1800  # the cores may be shared
PARTS = ("kernels", "merging", "copies and sums", "messages", "Python")


@dataclass(frozen=True)
class Setting:
    """One computation on the ranks of a ring, in as many rings as are there at the same time."""

    ranks: int
    length: int
    documents: str = "one document"
    layout: str = "zigzag"
    transport: str = "auto"
    rings: int = 1

    def members(self) -> list[range]:
        """The ranks of each ring."""
        return [range(i * self.ranks, (i + 1) * self.ranks) for i in range(self.rings)]

    def cut(self) -> tuple[Layout, list[Ints]]:
        """The layout, and bounds of the only row."""
        rows = [DOCUMENTS[self.documents](self.length)]
        return LAYOUTS[self.layout](rows, self.ranks), rows


@dataclass(frozen=True)
class Measured:
    """What one rank spent on a step."""

    cpu_s: float
    parts: dict[str, float]
    """CPU seconds of PARTS."""
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
    """CPU seconds of the busiest of 4 ranks over the mean, each the median of its rounds."""
    for documents in DOCUMENTS:
        for layout in LAYOUTS:
            setting = Setting(4, 4096, documents, layout)
            seconds = [np.median([found.cpu_s for found in rank]) for rank in measure(setting)]
            layout_of, rows = setting.cut()
            predicted = imbalance(predict_work(layout_of, rows))
            yield _row(
                "CPU s per rank, max / mean",
                f"{documents}, {layout}, 4 ranks, {setting.length} tokens",
                float(max(seconds) / np.mean(seconds)),
                f"{predicted:.3f} predicted",
            )


def _overhead() -> Iterator[dict[str, Any]]:
    """CPU seconds of a ring over those of one process, by turns on the same ranks.

    Processes on shared cores and caches slow each other down, with a ring or without: each rank
    computes the whole row by itself, then its part of it, and so on.
    """
    for ranks in (2, 4):
        found = run_ranks(ranks, _by_turns, ranks, timeout_s=PATIENCE_S)
        alone, ring = np.sum(found, axis=0)  # (1 + PARTS,): CPU s of all ranks
        case = f"{ranks} ranks, {LENGTH} tokens, zigzag"
        ratio = float(ring[0] / alone[0] * ranks)
        kernels = f"{alone[0] / ranks:.2f} s; kernels {ring[1] / alone[1] * ranks:.3f}"
        yield _row("CPU s of a ring / of one process", case, ratio, kernels)
        for part, seconds, by_one in zip(PARTS, ring[1:], alone[1:], strict=True):
            against = f"{by_one / ranks:.4f} s of one process"
            yield _row(
                f"{part}: share of a ring's CPU s", case, float(seconds / ring[1:].sum()), against
            )


def _by_turns(ranks: int) -> list[list[float]]:
    """Medians of a rank's CPU seconds, and of those of each part: a row by itself, and in the
    ring."""
    works = [_Work(Setting(1, LENGTH, rings=ranks)), _Work(Setting(ranks, LENGTH))]
    rounds = [[work.timed() for work in works] for _ in range(ROUNDS)]
    numbers = [[[f.cpu_s, *(f.parts[part] for part in PARTS)] for f in turns] for turns in rounds]
    return np.median(numbers, axis=0).tolist()


def _bytes() -> Iterator[dict[str, Any]]:
    """What a rank sends, over (W - 1) hops of KV forward, W - 1 of KV and W of dKV backward."""
    for ranks in (2, 4):
        for way in ("ring", "allgather"):
            sent = measure(Setting(ranks, 1024, transport=way), rounds=1)[0][0].sent
            hop = 2 * (1024 // ranks) * SHAPE.kv_heads * SHAPE.width * 4
            least = hop * (2 * (ranks - 1) + ranks)
            yield _row(
                "bytes sent / least of a ring", f"{ranks} ranks, {way}", sent / least,
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


def measure(setting: Setting, rounds: int = ROUNDS) -> list[list[Measured]]:
    """The rounds of each forked rank."""
    ranks = setting.ranks * setting.rings
    return run_ranks(ranks, _measure, setting, rounds, timeout_s=PATIENCE_S)


def _measure(setting: Setting, rounds: int) -> list[Measured]:
    work = _Work(setting)
    return [work.timed() for _ in range(rounds)]


class _Work:
    """A rank's forward and backward pass."""

    def __init__(self, setting: Setting) -> None:
        self.ring = open_ring(setting.members(), torch.device("cpu"), timedelta(seconds=120))
        self.clock = _watched()
        self.step = self._prepared(setting)
        self.step()  # first use of everything

    def _prepared(self, setting: Setting) -> Callable[[], None]:
        layout, rows = setting.cut()
        work = predict_work(layout, rows)
        way = setting.transport if setting.transport != "auto" else choose_transport(work)
        plan = build_plan(layout, rows, self.ring.rank).to_tensor()
        state = RingState(plan, self.ring.name, way, "timed")
        q, k, v, dout = ring_emulated.tensors(layout.local_length, SHAPE, self.ring.rank)
        leaves = [t.requires_grad_() for t in (q, k, v)]

        def step() -> None:
            torch.autograd.grad(ring_attention(q, k, v, state, SHAPE.width**-0.5), leaves, dout)

        return step

    def timed(self) -> Measured:
        """One step, begun by all ranks together."""
        dist.barrier()
        self.ring.bytes_sent = 0
        self.clock.seconds.clear()
        all_threads, this_one = time.process_time(), time.thread_time()
        self.step()
        this_one, all_threads = time.thread_time() - this_one, time.process_time() - all_threads
        parts = defaultdict(float, self.clock.seconds)
        parts["Python"] = this_one - sum(parts.values())
        parts["messages"] += all_threads - this_one  # gloo's threads
        return Measured(all_threads, {part: parts[part] for part in PARTS}, self.ring.bytes_sent)


class _Clock:
    """CPU seconds of this thread in each part, without those of parts within it."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.within = [0.0]

    def watch(self, part: str, owner: Any, *names: str) -> None:
        """Replaces functions of a module or class by such as count for `part`."""
        for name in names:
            setattr(owner, name, self.timed(part, getattr(owner, name)))

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that counts for `part`."""

        def timed(*args: Any, **keywords: Any) -> Any:
            start = time.thread_time()
            self.within.append(0.0)
            try:
                return function(*args, **keywords)
            finally:
                took = time.thread_time() - start
                self.seconds[part] += took - self.within.pop()
                self.within[-1] += took

        return timed


@functools.cache
def _watched() -> _Clock:
    """The clock of this process, in place; the kernel "timed" is cpu_flash by it."""
    clock, kernel = _Clock(), KERNELS["cpu_flash"]
    KERNELS["timed"] = replace(
        kernel,
        forward=clock.timed("kernels", kernel.forward),
        backward=clock.timed("kernels", kernel.backward),
    )
    clock.watch("merging", blocks, "merge_")
    clock.watch("copies and sums", blocks.DenseBlock, "forward", "backward")
    clock.watch("copies and sums", attention, "_share", "_stored_by_token", "by_head")
    clock.watch("copies and sums", transport, "message")
    clock.watch("copies and sums", transport.RingGradients, "add")
    clock.watch("copies and sums", transport.ScatteredGradients, "home")
    clock.watch("messages", transport, "hop", "collective")
    clock.watch("messages", waiting.Pending, "wait")
    return clock


if __name__ == "__main__":
    for row in run():
        print(row)
