"""Messages of a ring, and what is said when one does not come.

gloo's waits end after the ring's time-out, and the error names who was waited for and who does not
answer. NCCL's return at once; there its watchdog ends the process after the group's time-out.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ringshard.parallel.ring.group import Ring


class RingError(RuntimeError):
    """A peer is lost or late, or does not do what this rank does."""


@dataclass
class Pending:
    """A message under way; keeps its tensors until it has arrived."""

    ring: Ring
    works: Sequence[Any]
    tensors: tuple[Tensor, ...]
    what: str
    group: dist.ProcessGroup | None

    def wait(self) -> None:
        """Returns when all of it is sent and received; raises RingError after the time-out."""
        with _explained(self.ring, self.what, self.group):
            for work in self.works:
                # An explicit time-out would make NCCL wait on the host.
                if dist.get_backend(self.group) == "gloo":
                    work.wait(self.ring.timeout)
                else:
                    work.wait()


def hop(
    ring: Ring,
    group: dist.ProcessGroup | None,
    send: Tensor,
    receive: Tensor,
    what: str,
    step: int,
) -> Pending:
    """Begins to send to the next rank and to receive from the previous one.

    Both in one batch, for two that send first would wait for each other.
    """
    operations = [
        dist.P2POp(dist.isend, send, ring.next, group),
        dist.P2POp(dist.irecv, receive, ring.previous, group),
    ]
    ring.bytes_sent += send.numel() * send.element_size()
    what = f"{what} of step {step} from rank {ring.previous}"
    return _begin(ring, group, operations, what)


def collective(ring: Ring, kind: str, output: Tensor, own: Tensor, what: str) -> Pending:
    """Begins an all_gather or a reduce_scatter along the first dimension, of size cp."""
    function = getattr(dist, f"{kind}_single", None) or _OLD_NAMES[kind]  # torch 2.13, before it
    if kind == "all_gather":
        group, flat = ring.keys, (output.flatten(0, 1), own)  # (cp · 2, B, S, Hkv, D)
    else:
        group, flat = ring.gradients, (output, own.flatten(0, 1))
    ring.bytes_sent += (ring.size - 1) * min(own.nbytes, output.nbytes)
    what = f"{what} from ranks {_others(ring)}"
    with _explained(ring, what, group):
        work = function(*flat, group=group, async_op=True)
    return Pending(ring, [work], (output, own), what, group)


_OLD_NAMES: dict[str, Any] = {
    "all_gather": dist.all_gather_into_tensor,
    "reduce_scatter": dist.reduce_scatter_tensor,
}


def exchange(ring: Ring, numbers: Sequence[int]) -> dict[int, list[int]]:
    """What each rank of the ring says, by global rank; `numbers` are equally many everywhere.

    Each is sent to each on the host, so that a peer that does not answer is known by name.
    """
    own = torch.tensor(numbers, dtype=torch.int64)
    heard = {ring.ranks[ring.rank]: own}
    pending = []
    for peer in _others(ring):
        heard[peer] = torch.empty_like(own)
        operations = [
            dist.P2POp(dist.isend, own, peer, ring.host),
            dist.P2POp(dist.irecv, heard[peer], peer, ring.host),
        ]
        pending.append(_begin(ring, ring.host, operations, f"an answer from rank {peer}"))
    for message in pending:
        message.wait()
    return {peer: heard[peer].tolist() for peer in ring.ranks}


def agree_on_shape(ring: Ring, message: Tensor, transport: str) -> None:
    """Before the first hop of messages (2, B, S, Hkv, D) of a new shape or format, compares it.

    gloo ends the process where sizes differ. Ranks that have seen the shape do not ask again: a
    rank that asks alone waits in vain, in bounded time.
    """
    names = ("kv", "rows", "tokens", "kv_heads", "width", "itemsize", "transport")
    seen = (*message.shape, message.element_size(), ord(transport[0]))
    if ring.host is not None and seen not in ring.agreed:
        agree(ring, **dict(zip(names, seen, strict=True)))
        ring.agreed.add(seen)


def roll_call(ring: Ring) -> list[int]:
    """Ranks of the ring that do not answer within the time-out.

    All that wait in vain call it at about the same time, for one waits for the other; so it finds
    the rank where it began.
    """
    deadline = time.monotonic() + ring.timeout.total_seconds()
    works = {peer: _greet(ring, peer) for peer in _others(ring)}
    return [peer for peer, pair in works.items() if not _arrive(pair, deadline)]


def _greet(ring: Ring, peer: int) -> list[Any]:
    """Nothing where the connection is gone already."""
    place = ring.ranks.index(peer)
    with contextlib.suppress(RuntimeError):
        greeting, answer = torch.zeros(1), torch.zeros(1)
        sent = dist.isend(greeting, group=ring.host, tag=1, group_dst=place)
        received = dist.irecv(answer, group=ring.host, tag=1, group_src=place)
        return [sent, received, (greeting, answer)]
    return []


def _arrive(pair: list[Any], deadline: float) -> bool:
    try:
        for work in pair[:2]:
            work.wait(timedelta(seconds=max(deadline - time.monotonic(), 0.1)))
    except RuntimeError:
        return False
    return bool(pair)


def agree(ring: Ring, **numbers: int) -> None:
    """Raises RingError unless all ranks of the ring have the same numbers; names which differ."""
    own = ring.ranks[ring.rank]
    for peer, heard in exchange(ring, list(numbers.values())).items():
        for name, mine, other in zip(numbers, numbers.values(), heard, strict=True):
            if mine != other:
                raise RingError(
                    f"ranks {own} and {peer} share a sequence but not its {name}: {mine} and "
                    f"{other}; all ranks of a ring must read the same rows"
                )


def _begin(
    ring: Ring, group: dist.ProcessGroup | None, operations: list[dist.P2POp], what: str
) -> Pending:
    with _explained(ring, what, group):
        works = dist.batch_isend_irecv(operations)
    return Pending(ring, works, tuple(o.tensor for o in operations), what, group)


def _others(ring: Ring) -> list[int]:
    return [rank for rank in ring.ranks if rank != ring.ranks[ring.rank]]


@contextlib.contextmanager
def _explained(ring: Ring, what: str, group: dist.ProcessGroup | None) -> Iterator[None]:
    """Makes a RingError of torch's error."""
    try:
        yield
    except RuntimeError as error:
        sentence = (
            f"rank {ring.ranks[ring.rank]} waited for {what}: it did not come within "
            f"{ring.timeout.total_seconds():g} s, or the connection was cut "
            f"({str(error).splitlines()[0]})"
        )
        if group is not ring.host:
            sentence += f"; ranks that do not answer: {roll_call(ring) or 'none'}"
        raise RingError(sentence) from error
