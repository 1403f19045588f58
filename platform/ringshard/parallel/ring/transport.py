"""How keys, values and their gradients travel: round the ring, or all at once.

A buffer is (2, B, S, Hkv, D): keys and values as one message. At step s a rank holds those of rank
r - s. Sums of gradients travel along: each rank adds its share, and after cp hops they are home.
"""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from ringshard.parallel.ring.group import Ring
from ringshard.parallel.ring.waiting import Pending, collective, hop


def message(k: Tensor, v: Tensor) -> Tensor:
    """Keys and values (B, Hkv, S, D) each as one buffer, stored token by token."""
    return torch.stack([k.transpose(1, 2), v.transpose(1, 2)])  # (2, B, S, Hkv, D)


def by_head(buffer: Tensor) -> tuple[Tensor, Tensor]:
    """The keys and values in a buffer, as views (B, Hkv, S, D)."""
    keys, values = buffer.transpose(2, 3)
    return keys, values


class Gradients(Protocol):
    """Sums of the gradients of keys and values over ranks."""

    def add(self, step: int, share: Tensor) -> None:
        """Takes this rank's share for the keys of `step`, each step once, in order. The transport
        owns the tensor from then on."""

    def home(self) -> Tensor:
        """After the last step: the sum for this rank's own keys, of the shape of a share."""


class Transport(Protocol):
    """One pass over all ranks' keys and values."""

    def keys_values(self, k: Tensor, v: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the keys and values (B, Hkv, S, D) of step 0, which are this rank's own `k` and
        `v`, of step 1, …; each is valid until the next is asked for."""

    def gradients(self) -> Gradients:
        """What sums the gradients of one backward pass."""


class RingTransport:
    """From neighbour to neighbour; a hop is under way while a block is computed."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def keys_values(self, k: Tensor, v: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """cp - 1 hops, between two buffers."""
        if self.ring.size == 1:
            yield k, v
            return
        held = message(k, v)
        spare = torch.empty_like(held)
        for step in range(self.ring.size - 1):
            pending = hop(self.ring, self.ring.keys, held, spare, "keys and values", step)
            yield by_head(held)
            pending.wait()
            held, spare = spare, held
        yield by_head(held)

    def gradients(self) -> "RingGradients":
        """cp hops."""
        return RingGradients(self.ring)


class RingGradients:
    """The sum for the keys at hand arrives while this rank's share is computed."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.pending: Pending | None = None
        self.arriving: Tensor | None = None

    def add(self, step: int, share: Tensor) -> None:
        """Adds what arrived to the share, and sends the sum to the next rank."""
        if self.pending is not None and self.arriving is not None:
            self.pending.wait()
            share += self.arriving
        if self.ring.size == 1:
            self.arriving = share
            return
        self.arriving = torch.empty_like(share)
        self.pending = hop(
            self.ring, self.ring.gradients, share, self.arriving, "gradients of keys", step
        )

    def home(self) -> Tensor:
        """The hop after the last step brings this rank's own."""
        if self.pending is not None:
            self.pending.wait()
        assert self.arriving is not None
        return self.arriving


class AllGather:
    """One collective each way: nobody waits for the busiest of a step, but all keys are held."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def keys_values(self, k: Tensor, v: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The rank's own while the others' come; then in the order of the ring, so that sums are
        made in the same order."""
        if self.ring.size == 1:
            yield k, v
            return
        own = message(k, v)
        everyone = own.new_empty((self.ring.size, *own.shape))  # (cp, 2, B, S, Hkv, D)
        pending = collective(self.ring, "all_gather", everyone, own, "keys and values")
        yield k, v
        pending.wait()
        for step in range(1, self.ring.size):
            yield by_head(everyone[(self.ring.rank - step) % self.ring.size])

    def gradients(self) -> "ScatteredGradients":
        """One reduce-scatter after the last step."""
        return ScatteredGradients(self.ring)


class ScatteredGradients:
    """Shares for all ranks are kept until the last one."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.shares: dict[int, Tensor] = {}

    def add(self, step: int, share: Tensor) -> None:
        """Keeps the share."""
        self.shares[(self.ring.rank - step) % self.ring.size] = share

    def home(self) -> Tensor:
        """Sums each rank's shares where they belong."""
        if self.ring.size == 1:
            return self.shares[0]
        shares = torch.stack([self.shares.pop(rank) for rank in range(self.ring.size)])
        own = torch.empty_like(shares[0])
        collective(self.ring, "reduce_scatter", own, shares, "gradients of keys").wait()
        return own


TRANSPORTS: dict[str, type[RingTransport] | type[AllGather]] = {
    "ring": RingTransport,
    "allgather": AllGather,
}
