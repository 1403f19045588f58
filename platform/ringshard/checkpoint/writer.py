"""Tensors to one file of each rank, in torch's format, with a digest of all that passes."""

import io
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import torch
import xxhash
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future
from torch.utils.serialization import config

from ringshard.checkpoint.manifest import Entry, Item

_LARGE = 1 << 18
"""Bytes from which on it pays to tell another thread."""


class Writer(FileSystemWriter):
    """Writes what torch's own would, in the calling thread: its helper threads swallow errors, a
    full disk among them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.files: dict[str, Entry] = {}
        """What this rank wrote."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """See StorageWriter; each item is on the disk when it returns."""
        name = f"{plan.storage_data.prefix}0.distcp"
        results: list[WriteResult] = []
        if plan.items:
            with (Path(self.path) / name).open("xb") as file, ThreadPoolExecutor(1) as beside:
                stream = _Digesting(file, beside)
                with _without_checksums():
                    results = [_write(stream, name, item, planner) for item in plan.items]
                file.flush()
                os.fsync(file.fileno())
            self.files[name] = Entry.of_items(stream.items)
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done


class _Digesting(io.RawIOBase):
    """A file of items that digests them."""

    def __init__(self, file: BinaryIO, beside: ThreadPoolExecutor) -> None:
        self.file, self.beside, self.size = file, beside, 0
        self.items: list[Item] = []

    def begin(self) -> None:
        """What follows is another item."""
        self.begun, self.item = self.size, xxhash.xxh3_128()

    def end(self) -> Item:
        """The item is complete."""
        found = Item(self.begun, self.size - self.begun, self.item.hexdigest())
        self.items.append(found)
        return found

    def write(self, data: Any) -> int:
        """Passes the bytes on; those of a tensor are digested meanwhile."""
        self.size += len(data)
        if len(data) < _LARGE:
            self.item.update(data)
            return self.file.write(data)
        digested = self.beside.submit(self.item.update, data)
        written = self.file.write(data)
        digested.result()
        return written


def _without_checksums() -> AbstractContextManager[None]:
    """torch's own take twice the time of the digests that are in their place."""
    patched: AbstractContextManager[None] = config.patch("save.compute_crc32", False)  # type: ignore[attr-defined]
    return patched


def _write(stream: _Digesting, name: str, item: Any, planner: SavePlanner) -> WriteResult:
    stream.begin()
    torch.save(_own_bytes(planner.resolve_data(item)), stream)  # type: ignore[arg-type]
    done = stream.end()
    storage = _StorageInfo(name, done.offset, done.length)
    return WriteResult(index=item.index, size_in_bytes=done.length, storage_data=storage)


def _own_bytes(found: Any) -> Tensor:
    """On the host, and no part of a larger storage, which would be saved as a whole."""
    assert isinstance(found, Tensor), "a checkpoint holds tensors only"
    tensor = found.detach().cpu()
    whole = tensor.untyped_storage().size() == tensor.numel() * tensor.itemsize
    return tensor if whole else tensor.clone()
