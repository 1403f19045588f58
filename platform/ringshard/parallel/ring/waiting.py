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

from ringshard.errors import first_line
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
    return begin(ring, group, operations, what)


def collective(ring: Ring, kind: str, output: Tensor, own: Tensor, what: str) -> Pending:
    """Begins an all_gather or a reduce_scatter along the first dimension, of size cp."""
    function = getattr(dist, f"{kind}_single", None) or _OLD_NAMES[kind]  # torch 2.13, before it
    if kind == "all_gather":
        group, flat = ring.keys, (output.flatten(0, 1), own)  # (cp · 2, B, S, Hkv, D)
    else:
        group, flat = ring.gradients, (output, own.flatten(0, 1))
    ring.bytes_sent += (ring.size - 1) * min(own.nbytes, output.nbytes)
    what = f"{what} from ranks {ring.others}"
    with _explained(ring, what, group):
        work = function(*flat, group=group, async_op=True)
    return Pending(ring, [work], (output, own), what, group)


_OLD_NAMES: dict[str, Any] = {
    "all_gather": dist.all_gather_into_tensor,
    "reduce_scatter": dist.reduce_scatter_tensor,
}


def roll_call(ring: Ring) -> list[int]:
    """Ranks of the ring that do not answer within the time-out.

    All that wait in vain call it at about the same time, for one waits for the other; so it finds
    the rank where it began.
    """
    deadline = time.monotonic() + ring.timeout.total_seconds()
    works = {peer: _greet(ring, peer) for peer in ring.others}
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


def begin(
    ring: Ring, group: dist.ProcessGroup | None, operations: list[dist.P2POp], what: str
) -> Pending:
    """Posts messages that belong together; `what` is what this rank waits for."""
    with _explained(ring, what, group):
        works = dist.batch_isend_irecv(operations)
    return Pending(ring, works, tuple(o.tensor for o in operations), what, group)


@contextlib.contextmanager
def _explained(ring: Ring, what: str, group: dist.ProcessGroup | None) -> Iterator[None]:
    """Makes a RingError of torch's error."""
    try:
        yield
    except RuntimeError as error:
        sentence = (
            f"rank {ring.ranks[ring.rank]} waited for {what}: it did not come within "
            f"{ring.timeout.total_seconds():g} s, or the connection was cut "
            f"({first_line(error)})"
        )
        if group is not ring.host:
            sentence += f"; ranks that do not answer: {roll_call(ring) or 'none'}"
        raise RingError(sentence) from error
