"""What ranks of a ring must have in common, compared before anything large is sent."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from ringshard.parallel.ring.group import Ring
from ringshard.parallel.ring.waiting import RingError, begin


def exchange(ring: Ring, numbers: Sequence[int]) -> dict[int, list[int]]:
    """What each rank of the ring says, by global rank; `numbers` are equally many everywhere.

    Each is sent to each on the host, so that a peer that does not answer is known by name.
    """
    own = torch.tensor(numbers, dtype=torch.int64)
    heard = {ring.ranks[ring.rank]: own}
    pending = []
    for peer in ring.others:
        heard[peer] = torch.empty_like(own)
        operations = [
            dist.P2POp(dist.isend, own, peer, ring.host),
            dist.P2POp(dist.irecv, heard[peer], peer, ring.host),
        ]
        pending.append(begin(ring, ring.host, operations, f"an answer from rank {peer}"))
    for message in pending:
        message.wait()
    return {peer: heard[peer].tolist() for peer in ring.ranks}


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


def agree_on_shape(ring: Ring, k: Tensor, transport: str) -> None:
    """Before the first hop of keys (B, Hkv, S, D) of a new shape or format, compares it.

    gloo ends the process where sizes differ. Ranks that have seen the shape do not ask again: a
    rank that asks alone waits in vain, in bounded time.
    """
    names = ("rows", "kv_heads", "tokens", "width", "itemsize", "transport")
    seen = (*k.shape, k.element_size(), ord(transport[0]))
    if ring.host is not None and seen not in ring.agreed:
        agree(ring, **dict(zip(names, seen, strict=True)))
        ring.agreed.add(seen)
