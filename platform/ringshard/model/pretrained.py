"""Weights from a folder of safetensors, read slice by slice: no rank ever holds a full copy."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel

from ringshard.errors import ConfigError
from ringshard.model.init import local, local_slice
from ringshard.model.names import stored_tensors


@torch.no_grad()
def load_pretrained(model: PreTrainedModel, directory: str) -> None:
    """Fills parameters and persistent buffers of `model` (sharded or not) from safetensors.

    Raises ConfigError for a missing name or another shape before any weight is touched.
    """
    files = _files(Path(directory))
    wanted = stored_tensors(model)
    missing = [name for name in wanted if name not in files]
    if missing:
        raise ConfigError(
            f"model.pretrained={directory} lacks {len(missing)} weights of the model, "
            f"{missing[0]} the first: is it of another type?"
        )
    for act in (_refuse_shape, _copy_slice):
        for path in sorted({files[name] for name in wanted}):
            with safe_open(path, framework="pt") as file:
                for name in (n for n in wanted if files[n] == path):
                    act(name, wanted[name], file.get_slice(name))


def _files(directory: Path) -> dict[str, Path]:
    """The safetensors file of each tensor name."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {name: directory / file for name, file in names.items()}
    single = directory / "model.safetensors"
    if not single.is_file():
        raise ConfigError(
            f"model.pretrained={directory} holds neither model.safetensors nor "
            "model.safetensors.index.json: give a folder saved by save_pretrained"
        )
    with safe_open(single, framework="pt") as file:
        return dict.fromkeys(file.keys(), single)


def _refuse_shape(name: str, tensor: Tensor, stored: Any) -> None:
    if tuple(stored.get_shape()) != tuple(tensor.shape):
        raise ConfigError(
            f"model.pretrained has {name} as {tuple(stored.get_shape())}, the model as "
            f"{tuple(tensor.shape)}: make model.config agree with it"
        )


def _copy_slice(_: str, tensor: Tensor, stored: Any) -> None:
    shape, offset = local_slice(tensor)
    if 0 not in shape:
        part = tuple(slice(o, o + n) for o, n in zip(offset, shape, strict=True))
        local(tensor).copy_(stored[part])
