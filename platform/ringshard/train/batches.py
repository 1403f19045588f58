"""The rows of each step, read ahead by a thread; which rows is a function of the step and the rank
alone."""

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from ringshard.data.dataset import Rows
from ringshard.model.head import IGNORED
from ringshard.parallel.ring.documents import Ints

if TYPE_CHECKING:
    from ringshard.train.pieces import Piece


class Readable(Protocol):
    """What batches are read from."""

    def read(self, first: int, last: int) -> Rows:
        """Rows [first, last)."""
        ...


@dataclass(frozen=True)
class Batch:
    """This rank's part of a step's rows, in host memory."""

    first: int
    """Where it begins among the step's rows."""
    input_ids: Tensor
    """(B, S) int64."""
    targets: Tensor
    """(B, S) int64, -100 where a token is not learned."""
    corpus: Tensor
    """(B,) int64: which corpus a row is from."""
    bounds: Sequence[Ints]
    """Of the documents of each row, over its S inputs."""
    padding: int = 0
    """Inputs of its rows that are of no document."""
    step_rows: int = 0
    """Rows of the whole step."""
    pieces: Sequence["Piece"] = ()
    """What this rank computes of it, cut ahead; empty: not yet."""

    @property
    def counts(self) -> Tensor:
        """(B,) int64: learned tokens of each row."""
        return (self.targets != IGNORED).sum(1)

    def micro_batches(self, size: int) -> Iterator["Batch"]:
        """Pieces of at most `size` rows, in order."""
        for start in range(0, len(self.input_ids), size):
            part = slice(start, start + size)
            yield Batch(
                self.first + start,
                self.input_ids[part],
                self.targets[part],
                self.corpus[part],
                self.bounds[part],
            )


def batch_of(rows: Rows, first: int) -> Batch:
    """The batch of rows that begin at `first` in their step; labels are shifted here, once.

    A document's last token would learn the next one's first, which `loss_mask` leaves out.
    """
    tokens = torch.from_numpy(rows.tokens)  # (B, S + 1)
    loss_mask = torch.from_numpy(rows.loss_mask)  # (B, S)
    targets = tokens[:, 1:].masked_fill(~loss_mask, IGNORED)
    inputs = tokens[:, :-1].contiguous()
    corpus, padding = torch.from_numpy(rows.corpus), int(rows.padding.sum())
    return Batch(first, inputs, targets, corpus, rows.bounds, padding)


def share(total: int, rank: int, size: int) -> tuple[int, int]:
    """The rows [first, last) of `total` that `rank` of `size` reads; `total` is a multiple of
    `size`."""
    each = total // size
    return rank * each, (rank + 1) * each


class Batches:
    """This rank's batch of each step from `first_row` on, `depth` of them read, and cut, ahead."""

    def __init__(
        self,
        dataset: Readable,
        rows_of: Callable[[int], int],
        rank: int,
        size: int,
        first_row: int = 0,
        *,
        first_step: int = 0,
        repeat_first: bool = False,
        cut: Callable[[Batch], Sequence["Piece"]] = lambda batch: (),
        depth: int = 2,
    ) -> None:
        """rows_of: rows of a step, by its number; first_row, first_step: where to begin."""

        def read(step_row: int, rows: int) -> Batch:
            first, last = share(rows, rank, size)
            start = 0 if repeat_first else step_row
            batch = batch_of(dataset.read(start + first, start + last), first)
            return replace(batch, step_rows=rows, pieces=cut(batch))

        self.wait_s = 0.0
        """Seconds spent in `next` so far: what the reading thread could not hide."""
        self._queue: queue.Queue[Batch | BaseException] = queue.Queue(depth)
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._fill,
            args=(read, first_row, map(rows_of, itertools.count(first_step))),
            daemon=True,
        )
        self._thread.start()

    def _fill(self, read: Callable[[int, int], Batch], row: int, sizes: Iterator[int]) -> None:
        try:
            while not self._closed.is_set():
                rows = next(sizes)
                self._put(read(row, rows))
                row += rows
        except BaseException as error:  # raised again in `next`, where the training thread sees it
            self._put(error)

    def _put(self, item: Batch | BaseException) -> None:
        while not self._closed.is_set():
            with suppress(queue.Full):
                self._queue.put(item, timeout=0.1)
                return

    def next(self) -> Batch:
        """The next step's batch; raises what the reading thread raised."""
        started = time.perf_counter()
        item = self._queue.get()
        self.wait_s += time.perf_counter() - started
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """Ends the reading thread."""
        self._closed.set()
        self._thread.join()
