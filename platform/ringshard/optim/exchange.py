"""Whole matrices out of shards and back: each is orthogonalized by one rank, its owner.

Two all-to-alls for each bucket of matrices: rows to the owners, results to where the rows came
from. A rank receives 2 M b (N - 1) / N² bytes a step, of M numbers of b bytes on N ranks, where
gathering everything everywhere takes M b (N - 1) / N; and each matrix is iterated on once, not N
times. While a bucket is iterated on, the next one is on its way.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from ringshard.optim.layout import Layout

Compute = Callable[[list[int], list[Tensor]], list[Tensor]]
"""Numbers of parameters and their whole updates, to results of the same shapes."""


@dataclass(frozen=True)
class Plan:
    """Who owns what; the same on all ranks."""

    shapes: list[tuple[int, ...]]
    """Of each parameter."""
    owners: list[int]
    """Rank that orthogonalizes it."""
    buckets: list[list[int]]
    """Parameters that are exchanged together, the costliest first."""

    def of(self, bucket: list[int], owner: int) -> list[int]:
        """The parameters of a bucket that a rank owns."""
        return [index for index in bucket if self.owners[index] == owner]

    def digest(self) -> int:
        """A number [0, 2^63) that differs where plans do."""
        found = hashlib.sha256(repr((self.shapes, self.owners, self.buckets)).encode()).digest()
        return int.from_bytes(found[:8], "little") >> 1


def cost(layout: Layout) -> float:
    """Operations of an iteration, but for a factor: p² (2q + p) for each (p, q) matrix, p <= q."""
    sorted_shapes = [sorted(shape) for shape in layout.matrices]
    return sum(p * p * (2 * q + p) for p, q in sorted_shapes)


def plan(layouts: Sequence[Layout], ranks: int, bucket_bytes: int, itemsize: int) -> Plan:
    """Each matrix to the rank with the least to do so far, the costliest first, over all of the
    model (longest processing time first, Graham 1969); then buckets of at most `bucket_bytes` a
    rank, or of one matrix a rank: what is computed at a time shall keep all of them busy."""
    order = sorted(range(len(layouts)), key=lambda i: (-cost(layouts[i]), i))
    owners, loads = [0] * len(layouts), [0.0] * ranks
    buckets: list[list[int]] = []
    room = 0.0
    for index in order:
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += cost(layouts[index])
        size = itemsize * layouts[index].shape[0] * layouts[index].shape[1]
        if not buckets or (size > room and len(buckets[-1]) >= ranks):
            buckets.append([])
            room = bucket_bytes * ranks
        buckets[-1].append(index)
        room -= size
    return Plan([layout.shape for layout in layouts], owners, buckets)


def rows_of(rank: int, rows: int, ranks: int) -> int:
    """Rows of a parameter that a rank holds: FSDP cuts as torch.chunk, so the last ranks may have
    fewer, or none."""
    each = -(-rows // ranks)
    return max(0, min(rows, (rank + 1) * each) - rank * each)


class Exchange:
    """Carries out a plan on the ranks of `group`, all of which call it at the same time."""

    def __init__(self, plan: Plan, group: dist.ProcessGroup, device: torch.device) -> None:
        """Raises RuntimeError on all ranks where their plans are not the same."""
        self.plan, self.group, self.device = plan, group, device
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        digests = torch.tensor([plan.digest(), -plan.digest()], device=device)
        dist.all_reduce(digests, op=dist.ReduceOp.MAX, group=group)
        if int(digests.sum()) != 0:
            raise RuntimeError("the ranks have planned different exchanges of matrices")

    def __call__(
        self, parts: Sequence[Tensor], compute: Compute, dtype: torch.dtype
    ) -> list[Tensor]:
        """What `compute` makes of the whole parameters, of which `parts` are this rank's rows;
        returns this rank's rows, in `dtype`, in which all is sent."""
        results: dict[int, Tensor] = {}
        returning: _Message | None = None
        arriving = self._to_owners(self.plan.buckets[0], parts, dtype)
        for number, bucket in enumerate(self.plan.buckets):
            wholes = self._assembled(bucket, arriving.wait())
            if number + 1 < len(self.plan.buckets):
                arriving = self._to_owners(self.plan.buckets[number + 1], parts, dtype)
            computed = compute(self.plan.of(bucket, self.rank), wholes)
            if returning:
                results |= self._returned(self.plan.buckets[number - 1], returning.wait())
            returning = self._back(bucket, computed, dtype)
        assert returning is not None
        results |= self._returned(self.plan.buckets[-1], returning.wait())
        return [results[index] for index in range(len(parts))]

    def _to_owners(
        self, bucket: list[int], parts: Sequence[Tensor], dtype: torch.dtype
    ) -> "_Message":
        """This rank's rows of each matrix to its owner."""
        send = [[parts[i] for i in self.plan.of(bucket, owner)] for owner in range(self.ranks)]
        mine = self.plan.of(bucket, self.rank)
        receive = [sum(self._size(i, rank) for i in mine) for rank in range(self.ranks)]
        return _Message(send, receive, dtype, self.group, self.device)

    def _assembled(self, bucket: list[int], received: Sequence[Tensor]) -> list[Tensor]:
        """The matrices of a bucket that this rank owns, whole."""
        mine = self.plan.of(bucket, self.rank)
        pieces = [
            torch.split(flat, [self._size(i, rank) for i in mine])
            for rank, flat in enumerate(received)
        ]
        return [
            torch.cat([own[place] for own in pieces]).view(self.plan.shapes[i])
            for place, i in enumerate(mine)
        ]

    def _back(self, bucket: list[int], wholes: list[Tensor], dtype: torch.dtype) -> "_Message":
        """Rows of each result to the rank that holds the parameter's rows."""
        mine = self.plan.of(bucket, self.rank)
        cut = [self._cut(whole, i) for whole, i in zip(wholes, mine, strict=True)]
        send = [[rows[rank] for rows in cut] for rank in range(self.ranks)]
        receive = [
            sum(self._size(i, self.rank) for i in self.plan.of(bucket, owner))
            for owner in range(self.ranks)
        ]
        return _Message(send, receive, dtype, self.group, self.device)

    def _returned(self, bucket: list[int], received: Sequence[Tensor]) -> dict[int, Tensor]:
        """This rank's rows of each result of a bucket."""
        found = {}
        for owner, flat in enumerate(received):
            theirs = self.plan.of(bucket, owner)
            pieces = torch.split(flat, [self._size(i, self.rank) for i in theirs])
            for index, piece in zip(theirs, pieces, strict=True):
                found[index] = piece.view(-1, *self.plan.shapes[index][1:])
        return found

    def _cut(self, whole: Tensor, index: int) -> tuple[Tensor, ...]:
        rows = self.plan.shapes[index][0]
        return torch.split(whole, [rows_of(rank, rows, self.ranks) for rank in range(self.ranks)])

    def _size(self, index: int, rank: int) -> int:
        """Numbers of a parameter that a rank holds."""
        rows, columns = self.plan.shapes[index]
        return rows_of(rank, rows, self.ranks) * columns


class _Message:
    """One all-to-all under way."""

    def __init__(
        self,
        send: list[list[Tensor]],
        receive: list[int],
        dtype: torch.dtype,
        group: dist.ProcessGroup,
        device: torch.device,
    ) -> None:
        """send: tensors for each rank, in order; receive: numbers from each rank."""
        flat = [tensor.to(dtype).flatten() for tensors in send for tensor in tensors]
        self._sizes = receive
        self._sent = torch.cat(flat) if flat else torch.empty(0, dtype=dtype, device=device)
        self._received = torch.empty(sum(receive), dtype=dtype, device=device)
        self._work = dist.all_to_all_single(
            self._received,
            self._sent,
            output_split_sizes=receive,
            input_split_sizes=[sum(t.numel() for t in tensors) for tensors in send],
            group=group,
            async_op=True,
        )

    def wait(self) -> Sequence[Tensor]:
        """What each rank sent."""
        assert self._work is not None
        self._work.wait()
        return torch.split(self._received, self._sizes)
