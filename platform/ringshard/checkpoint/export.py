"""A checkpoint's weights for others: a folder that transformers loads, or one file of torch.

Tensors are read one by one, and every byte is verified first.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as read
from transformers import AutoConfig

from ringshard.checkpoint.directory import reading
from ringshard.checkpoint.manifest import Manifest
from ringshard.checkpoint.metadata import Reader
from ringshard.checkpoint.state import MODEL, average_of, require_averages
from ringshard.errors import ConfigError
from ringshard.files import whole_file, whole_folder, write_json

SHARD_BYTES = 2 * 2**30
"""Of one safetensors file; no more than about twice that is held in memory."""


def to_transformers(
    checkpoint: Path, target: Path, shard_bytes: int = SHARD_BYTES, averaged: bool = False
) -> None:
    """A new folder `target` with config.json and safetensors, for `from_pretrained`.

    averaged: the weights' averages (optimizer.ema_decay) in place of the weights. A tied weight is
    stored once, as transformers does. Raises ConfigError where `target` exists, DamagedError where
    the checkpoint is not what was written.
    """
    if target.exists():
        raise ConfigError(f"--to {target} exists already: name another folder")
    with _verified(checkpoint, averaged) as manifest, whole_folder(target) as folder:
        shards = list(_write_shards(_weights(checkpoint, averaged), folder, shard_bytes))
        _name_shards(shards, folder)
        AutoConfig.for_model(**manifest.about["config"]).save_pretrained(folder)


def to_torch(checkpoint: Path, target: Path, averaged: bool = False) -> None:
    """One file for `torch.load(…, weights_only=True)`: the model's tensors by name."""
    if target.exists():
        raise ConfigError(f"--to {target} exists already: name another file")
    if not target.parent.is_dir():
        raise ConfigError(f"--to {target}: there is no folder {target.parent}, make it first")
    with _verified(checkpoint, averaged), whole_file(target) as file:
        torch.save(dict(_weights(checkpoint, averaged)), file)


@contextmanager
def _verified(checkpoint: Path, averaged: bool) -> Iterator[Manifest]:
    """Nobody removes the checkpoint meanwhile. Raises DamagedError, or before bytes are read
    ConfigError where averages are asked for that are not there."""
    with reading(checkpoint):
        if averaged:
            require_averages(Reader(checkpoint).read_metadata().state_dict_metadata)
        yield Manifest.verified(checkpoint)


def _weights(checkpoint: Path, averaged: bool) -> Iterator[tuple[str, Tensor]]:
    """The model's tensors, whole, in the format they were trained in, by the names they have in
    transformers."""
    metadata: Metadata = Reader(checkpoint).read_metadata()
    stored = metadata.state_dict_metadata
    for name, item in sorted(stored.items()):
        if name.startswith(MODEL) and isinstance(item, TensorStorageMetadata):
            source = average_of(name, stored) if averaged else name
            dtype = torch.float32 if source != name else item.properties.dtype
            tensor = torch.empty(item.size, dtype=dtype)
            read({source: tensor}, storage_reader=Reader(checkpoint), no_dist=True)
            yield name.removeprefix(MODEL), tensor.to(item.properties.dtype)


def _write_shards(
    weights: Iterator[tuple[str, Tensor]], folder: Path, shard_bytes: int
) -> Iterator[dict[str, int]]:
    """Writes `shard-0`, `shard-1`, …; yields the bytes of each tensor in each."""
    held: dict[str, Tensor] = {}
    number = 0
    for name, tensor in weights:
        if held and sum(t.nbytes for t in held.values()) + tensor.nbytes > shard_bytes:
            yield _write_shard(held, folder / f"shard-{number}")
            held, number = {}, number + 1
        held[name] = tensor
    yield _write_shard(held, folder / f"shard-{number}")


def _write_shard(held: dict[str, Tensor], path: Path) -> dict[str, int]:
    save_file(held, path, metadata={"format": "pt"})
    return {name: tensor.nbytes for name, tensor in held.items()}


def _name_shards(shards: list[dict[str, int]], folder: Path) -> None:
    """Gives the files the names that transformers looks for, with an index if there are several."""
    count = len(shards)
    names = [f"model-{n + 1:05d}-of-{count:05d}.safetensors" for n in range(count)]
    names = names if count > 1 else ["model.safetensors"]
    for number, name in enumerate(names):
        (folder / f"shard-{number}").rename(folder / name)
    if count > 1:
        files = {key: name for shard, name in zip(shards, names, strict=True) for key in shard}
        total = sum(sum(shard.values()) for shard in shards)
        index = {"metadata": {"total_size": total}, "weight_map": files}
        write_json(folder / "model.safetensors.index.json", json.loads(json.dumps(index)))
