"""Metrics of each step, kept on the device and read once an interval: the only host sync of the
loop."""

import math
import resource
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from ringshard.train.step import CorpusLosses

Facts = dict[str, float | Tensor]


@dataclass(frozen=True)
class Peak:
    """What the job's devices could do."""

    flops_per_token: float
    """Forward and backward pass [FLOP]."""
    flops_per_s: float
    """All devices of the job together [FLOP/s]."""
    devices: int
    """Devices of the job."""


@dataclass
class Recorder:
    """Collects steps until `flush` makes metrics of them; times and memory are this rank's own."""

    peak: Peak
    device: torch.device
    corpora_names: list[str]
    steps: list[Facts] = field(default_factory=list)
    losses: list[Tensor] = field(default_factory=list)
    norms: list[Tensor] = field(default_factory=list)
    seconds: float = 0.0
    """Time in training steps since the last flush [s]."""
    data_wait_s: float = 0.0
    """Part of it that waited for data [s]."""
    tokens: int = 0
    """What was computed since the last flush, also where nothing is learned of it."""

    intervals: list[tuple[float, float]] = field(default_factory=list)
    """Tokens and seconds of each interval so far."""
    skipped: int = 0
    """Updates that were left out so far, since their gradient was not finite."""
    skipped_at_end: int = 0
    """Those after the last update that was made."""

    def __post_init__(self) -> None:
        self.corpora = CorpusLosses.zeros(len(self.corpora_names), self.device)

    def add(self, facts: Facts, loss: Tensor, grad_norm: Tensor, tokens: int) -> None:
        """One step: what is known already (numbers, or 0-dim on the device, the same on all ranks),
        this rank's part of the loss, the global gradient norm, and the tokens of all ranks."""
        self.steps.append(facts)
        self.losses.append(loss)
        self.norms.append(grad_norm)
        self.tokens += tokens

    def flush(self) -> list[dict[str, float]]:
        """The metrics of each step since the last flush; those of the interval are with the last
        one: tokens/s count all that is computed, targets/s those that are learned."""
        started = time.perf_counter()
        losses, norms, corpora = self._reduce()
        self.seconds += time.perf_counter() - started  # on a GPU the steps are done only now
        for facts, loss, norm in zip(self.steps, losses, norms, strict=True):
            self._count(norm)
            facts.update({"train/loss": loss, "train/grad_norm": norm})
            facts["train/skipped"] = self.skipped
        self.steps[-1].update(self._interval() | corpora)
        self.intervals.append((self.tokens, self.seconds))
        flushed = [{name: float(value) for name, value in facts.items()} for facts in self.steps]
        self.steps, self.losses, self.norms = [], [], []
        self.seconds = self.data_wait_s = 0.0
        self.tokens = 0
        self.corpora = CorpusLosses.zeros(len(self.corpora_names), self.device)
        return flushed

    def _count(self, norm: float) -> None:
        """Whether `update` left the step out, as it decides by the same norm."""
        skipped = not math.isfinite(norm)
        self.skipped += skipped
        self.skipped_at_end = self.skipped_at_end + 1 if skipped else 0

    def _reduce(self) -> tuple[list[float], list[float], dict[str, float]]:
        """Parts of losses summed over the ranks: one collective and one copy to the host."""
        count, names = len(self.losses), self.corpora_names
        numbers = torch.cat([torch.stack(self.losses), self.corpora.losses, self.corpora.counts])
        dist.all_reduce(numbers)
        host = torch.cat([numbers, torch.stack(self.norms).to(numbers)]).tolist()
        sums, counts = host[count : count + len(names)], host[count + len(names) : -count]
        by_corpus = {
            f"train/loss/{name}": total / number
            for name, total, number in zip(names, sums, counts, strict=True)
            if number > 0 and len(names) > 1
        }
        return host[:count], host[-count:], by_corpus

    def rates(self) -> dict[str, float]:
        """Rates over all intervals but the first, which warms up, if there is another."""
        measured = self.intervals[1:] or self.intervals
        tokens, seconds = (
            (sum(column) for column in zip(*measured, strict=True)) if measured else (0, 1)
        )
        return self._rates(tokens / seconds)

    def _rates(self, tokens_per_s: float) -> dict[str, float]:
        return {
            "perf/tokens_per_s": tokens_per_s,
            "perf/tokens_per_s_per_device": tokens_per_s / self.peak.devices,
            "perf/mfu": tokens_per_s * self.peak.flops_per_token / self.peak.flops_per_s,
        }

    def _interval(self) -> dict[str, float]:
        learned = sum(float(facts["train/targets"]) for facts in self.steps) / self.seconds
        return self._rates(self.tokens / self.seconds) | {
            "perf/targets_per_s": learned,
            "perf/targets_per_s_per_device": learned / self.peak.devices,
            "perf/step_s": self.seconds / len(self.steps),
            "perf/data_wait": self.data_wait_s / self.seconds,
            "perf/peak_memory_gib": peak_memory_gib(self.device),
        }


def peak_memory_gib(device: torch.device) -> float:
    """Most memory that this process has held: of the device, or, on a CPU, resident [GiB]."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure_flops_per_s(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """The machine's GEMM peak per process, measured while all processes measure [FLOP/s].

    On a CPU a product takes about a millisecond, so that the best one was not interrupted.
    """
    size = 8192 if device.type == "cuda" else 384
    a = torch.ones(size, size, device=device, dtype=dtype)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        started = time.perf_counter()
        a @ a
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best
