"""The ranks that share one sequence, and their process groups."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

TIMEOUT = timedelta(minutes=10)
"""How long a rank waits for its peers."""


@dataclass(eq=False)
class Ring:
    """This rank's place in a ring; cp = 1 needs no process group."""

    name: str
    """By which an operator finds it."""
    ranks: tuple[int, ...]
    """Global ranks, in order of the ring."""
    rank: int
    """This rank's place."""
    timeout: timedelta
    keys: dist.ProcessGroup | None = None
    """Keys and values travel here, on a stream of their own."""
    gradients: dist.ProcessGroup | None = None
    """Their gradients travel here, so that neither waits for the other."""
    host: dist.ProcessGroup | None = None
    """gloo: small numbers on the host."""
    calls: int = 0
    """How often attention was computed (forward) since the count was last set to 0."""
    layers: Counter[int | None] = field(default_factory=Counter)
    """How often each layer asked for attention since the count was last cleared."""
    agreed: set[tuple[int, ...]] = field(default_factory=set)
    """Shapes of which all ranks know that they are the same."""
    bytes_sent: int = 0
    """What this rank has sent as keys, values and gradients [bytes]."""

    @property
    def size(self) -> int:
        """cp: how many ranks share a sequence."""
        return len(self.ranks)

    @property
    def others(self) -> list[int]:
        """Global ranks of the others."""
        return [rank for place, rank in enumerate(self.ranks) if place != self.rank]

    @property
    def next(self) -> int:
        """Global rank that this one sends to."""
        return self.ranks[(self.rank + 1) % self.size]

    @property
    def previous(self) -> int:
        """Global rank that this one receives from."""
        return self.ranks[self.rank - 1]


_OPEN: dict[str, Ring] = {}


def ring_named(name: str) -> Ring:
    """An open ring; an operator's arguments can't hold the object itself."""
    return _OPEN[name]


def name_ring(ring: Ring) -> Ring:
    """Makes a ring known by its name, and returns it."""
    _OPEN[ring.name] = ring
    return ring


def alone() -> Ring:
    """The ring of one process, without torch.distributed."""
    return _OPEN.get("alone") or name_ring(Ring("alone", (0,), 0, TIMEOUT))


def open_ring(
    rings: Sequence[Sequence[int]], device: torch.device, timeout: timedelta = TIMEOUT
) -> Ring:
    """The ring this rank is in; every rank calls it with the same list of all rings (global ranks).

    Makes three process groups a ring and warms them up: the first message of a NCCL group must be
    one that all of its ranks take part in.
    """
    mine = None
    for ranks in rings:
        keys, gradients, host = (_group(ranks, kind, timeout) for kind in (None, None, "gloo"))
        if dist.get_rank() in ranks:
            name, place = f"ring-{'-'.join(map(str, ranks))}", list(ranks).index(dist.get_rank())
            mine = Ring(name, tuple(ranks), place, timeout, keys, gradients, host)
    assert mine is not None, f"rank {dist.get_rank()} is in no ring of {rings}"
    for group in (mine.keys, mine.gradients):
        if group is not None:
            dist.all_reduce(torch.zeros(1, device=device), group=group)
    return name_ring(mine)


def _group(
    ranks: Sequence[int], backend: str | None, timeout: timedelta
) -> dist.ProcessGroup | None:
    if len(ranks) == 1:
        return None
    group = dist.new_group(list(ranks), timeout=timeout, backend=backend)
    return group if isinstance(group, dist.ProcessGroup) else None
