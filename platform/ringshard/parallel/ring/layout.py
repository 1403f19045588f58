"""Which rank holds which tokens: a sequence cut into equal chunks, which are dealt to ranks.

Every rank holds as many chunks as any other, in ascending order: a local sequence is in global
order, and the tokens of a document are neighbours in it.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ringshard.parallel.ring.documents import Ints, pairs_before


@dataclass(frozen=True)
class Layout:
    """A table chunk → rank."""

    chunk: int
    """Tokens of a chunk."""
    chunks: tuple[tuple[int, ...], ...]
    """The chunks of each rank, ascending; every rank has equally many."""

    @property
    def cp(self) -> int:
        """Ranks the sequence is cut over."""
        return len(self.chunks)

    @property
    def local_length(self) -> int:
        """Tokens of a rank."""
        return self.chunk * len(self.chunks[0])

    @property
    def length(self) -> int:
        """Tokens of the whole, padded sequence."""
        return self.local_length * self.cp

    @cached_property
    def owner(self) -> Ints:
        """The rank of each chunk (chunks,)."""
        owner = np.empty(self.length // self.chunk, dtype=np.int64)
        for rank, own in enumerate(self.chunks):
            owner[list(own)] = rank
        return owner

    @cached_property
    def held(self) -> Ints:
        """How many chunks before chunk j a rank holds (cp, chunks + 1)."""
        owned = self.owner[None, :] == np.arange(self.cp)[:, None]  # (cp, chunks)
        return np.pad(np.cumsum(owned, axis=1), ((0, 0), (1, 0))).astype(np.int64)

    def tokens(self, rank: int) -> Tensor:
        """Global index of each local token (S / cp,) int64."""
        own = torch.tensor(self.chunks[rank])
        return (own[:, None] * self.chunk + torch.arange(self.chunk)).flatten()

    def shard(self, whole: Tensor, rank: int, dim: int = 1) -> Tensor:
        """The rank's part of a tensor that has the padded length along `dim`."""
        if whole.shape[dim] != self.length:
            raise ValueError(
                f"a tensor of {whole.shape[dim]} tokens was given to a layout of {self.length}: "
                "pad it first"
            )
        return whole.index_select(dim, self.tokens(rank).to(whole.device))

    def unshard(self, parts: Sequence[Tensor], dim: int = 1) -> Tensor:
        """The whole tensor from the parts of rank 0, 1, …, along `dim`."""
        return torch.cat(list(parts), dim).index_select(dim, self.inverse().to(parts[0].device))

    def inverse(self) -> Tensor:
        """Where each global token is among the parts laid end to end (S,) int64."""
        order = torch.cat([self.tokens(rank) for rank in range(self.cp)])
        return torch.empty_like(order).scatter_(0, order, torch.arange(self.length))


def padded_length(length: int, cp: int, chunks_per_rank: int) -> int:
    """The least multiple of cp · chunks_per_rank that holds `length` > 0 tokens."""
    if length < 1:
        raise ValueError("a sequence needs at least one token")
    multiple = cp * chunks_per_rank
    return -(-length // multiple) * multiple


def pad_to(tensor: Tensor, length: int, value: float, dim: int = 1) -> Tensor:
    """`tensor` with `value` appended along `dim` up to `length`."""
    missing = length - tensor.shape[dim]
    if not missing:
        return tensor
    return F.pad(
        tensor, (0, 0) * (tensor.dim() - 1 - dim % tensor.dim()) + (0, missing), value=value
    )


def zigzag(length: int, cp: int) -> Layout:
    """2·cp chunks, rank r has r and 2·cp - 1 - r: equal work at every ring step on one document."""
    chunks = tuple((rank, 2 * cp - 1 - rank) for rank in range(cp))
    return Layout(_chunk(length, cp, 2), chunks)


def contiguous(length: int, cp: int) -> Layout:
    """One chunk a rank, in order; the last rank works (2·cp - 1)/cp times the mean."""
    return Layout(_chunk(length, cp, 1), tuple((rank,) for rank in range(cp)))


def balanced(rows: Sequence[Ints], cp: int, chunks_per_rank: int = 8) -> Layout:
    """Chunks dealt by the work of the documents in them: the next largest to the idlest rank.

    rows: bounds of each row, all of one padded length. Equal input gives an equal table everywhere.
    """
    chunk = _chunk(int(rows[0][-1]), cp, chunks_per_rank)
    edges = np.arange(cp * chunks_per_rank + 1) * chunk
    work = np.sum([np.diff(pairs_before(bounds, edges)) for bounds in rows], axis=0)  # (chunks,)
    chunks: list[list[int]] = [[] for _ in range(cp)]
    idlest = [(0, rank) for rank in range(cp)]
    for number in np.argsort(-work, kind="stable").tolist():
        load, rank = heapq.heappop(idlest)
        chunks[rank].append(number)
        if len(chunks[rank]) < chunks_per_rank:
            heapq.heappush(idlest, (load + int(work[number]), rank))
    return Layout(chunk, tuple(tuple(sorted(own)) for own in chunks))


def _chunk(length: int, cp: int, chunks_per_rank: int) -> int:
    if length % (cp * chunks_per_rank):
        raise ValueError(
            f"{length} tokens are no multiple of {cp} ranks × {chunks_per_rank} chunks: pad to "
            f"{padded_length(length, cp, chunks_per_rank)}"
        )
    return length // (cp * chunks_per_rank)


CHUNKS_PER_RANK = {"zigzag": 2, "contiguous": 1, "balanced": 8}

LAYOUTS: dict[str, Callable[[Sequence[Ints], int], Layout]] = {
    "zigzag": lambda rows, cp: zigzag(int(rows[0][-1]), cp),
    "contiguous": lambda rows, cp: contiguous(int(rows[0][-1]), cp),
    "balanced": lambda rows, cp: balanced(rows, cp, CHUNKS_PER_RANK["balanced"]),
}
"""Layouts by name, from the padded bounds of each row and the number of ranks."""
