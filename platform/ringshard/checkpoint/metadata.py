"""The table of contents that torch.distributed.checkpoint writes, read without trusting it."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from ringshard.errors import ConfigError
from ringshard.saved import METADATA

ALLOWED = {
    "pathlib": {"PosixPath"},
    "pathlib._local": {"PosixPath"},  # Python 3.13
    "torch": {"Size"} | {name for name, value in vars(torch).items() if type(value) is torch.dtype},
    "torch.serialization": {"_get_layout"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint.metadata": {
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
}
"""Names that a table of tensors needs: a pickle that names others could run anything."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in ALLOWED.get(module, ()):
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return super().find_class(module, name)


class Reader(FileSystemReader):
    """Reads tensors; refuses a `.metadata` that names anything but what describes tensors."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """The table of contents; raises ConfigError where it can't be read or trusted."""
        path = Path(self.path) / METADATA
        try:
            with path.open("rb") as file:
                metadata = _Unpickler(file).load()
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise ConfigError(
                f"checkpoint {self.path} has no {METADATA} that can be read ({error}): "
                "choose another checkpoint"
            ) from error
        assert isinstance(metadata, Metadata)
        return metadata


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Tensor]) -> list[str]:
    """What keeps the `stored` tensors from filling the `wanted` ones exactly; empty: nothing."""
    found = _names("missing there", wanted.keys() - stored.keys())
    found += _names("unknown here", stored.keys() - wanted.keys())
    for name in sorted(wanted.keys() & stored.keys()):
        there, here = stored[name], wanted[name]
        if not isinstance(there, TensorStorageMetadata):
            found.append(f"{name} is no tensor there")
        elif there.size != here.shape:
            found.append(f"{name} is {tuple(there.size)} there, {tuple(here.shape)} here")
        elif there.properties.dtype != here.dtype:  # torch would convert it without a word
            found.append(f"{name} is {there.properties.dtype} there, {here.dtype} here")
    return found


def _names(what: str, names: set[str]) -> list[str]:
    return [f"{what}: {', '.join(sorted(names))}"] if names else []


def broken_files(checkpoint: Path, metadata: Metadata) -> list[str]:
    """Files of the checkpoint that are missing or too short, with what is wrong."""
    needed: dict[str, int] = {}
    for item in metadata.storage_data.values():
        end = item.offset + item.length
        needed[item.relative_path] = max(end, needed.get(item.relative_path, 0))
    sizes = {name: _size(checkpoint / name) for name in needed}
    return [
        f"{name} is missing" if sizes[name] is None else f"{name} is cut short"
        for name, end in sorted(needed.items())
        if (sizes[name] or 0) < end
    ]


def _size(path: Path) -> int | None:
    """Bytes, or None where there is no such file."""
    return path.stat().st_size if path.is_file() else None
