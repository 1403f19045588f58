"""Arrays on disk: one that grows, and ones that are read where they lie."""

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray


class Growing:
    """An array that grows on disk, and its digest."""

    def __init__(self, path: Path, dtype: Any) -> None:
        self._file, self._dtype, self._digest = path.open("wb"), dtype, xxhash.xxh3_128()
        self.length = 0

    def append(self, values: NDArray[Any]) -> None:
        """Adds a block to the end."""
        block = np.ascontiguousarray(values, dtype=self._dtype).data
        self._file.write(block)
        self._digest.update(block)
        self.length += len(values)

    def close(self) -> str:
        """The digest, when all is written."""
        self._file.close()
        return self._digest.hexdigest()


def mapped(path: Path, dtype: str) -> NDArray[Any]:
    """An array whose pages are read when they are looked at."""
    # The file may be empty, which cannot be mapped.
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.empty(0, dtype)


def forget(array: NDArray[Any]) -> None:
    """Gives back the memory of the pages of a mapped array that were looked at."""
    if isinstance(array.base, mmap.mmap):
        array.base.madvise(mmap.MADV_DONTNEED)
