"""Weights from a folder of safetensors, read slice by slice: no rank ever holds a full copy."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import PreTrainedModel

from ringshard.errors import ConfigError
from ringshard.model.init import local, local_slice
from ringshard.model.names import canonical


@torch.no_grad()
def load_pretrained(model: PreTrainedModel, directory: str) -> None:
    """Fills every parameter of `model` (sharded or not, with storage) from the safetensors in
    `directory`.

    Raises ConfigError that lists missing names or different shapes before any weight is touched.
    """
    files = _files(Path(directory))
    tied = set(model.all_tied_weights_keys)
    wanted = {canonical(name): parameter for name, parameter in model.named_parameters()}
    missing = [name for name in wanted if name not in files and name not in tied]
    if missing:
        raise ConfigError(
            f"model.pretrained={directory} lacks {len(missing)} weights of the model, "
            f"{missing[0]} the first: is it of another type?"
        )
    _refuse_shapes(wanted, files, directory)
    for path in sorted(set(files.values())):
        with safe_open(path, framework="pt") as file:
            for name in (n for n in wanted if files.get(n) == path):
                _copy_slice(wanted[name], file.get_slice(name))


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


def _refuse_shapes(wanted: dict[str, Any], files: dict[str, Path], directory: str) -> None:
    for name, parameter in wanted.items():
        if name not in files:
            continue
        with safe_open(files[name], framework="pt") as file:
            found = tuple(file.get_slice(name).get_shape())
        if found != tuple(parameter.shape):
            raise ConfigError(
                f"model.pretrained={directory} has {name} as {found}, the model as "
                f"{tuple(parameter.shape)}: make model.config agree with it"
            )


def _copy_slice(parameter: torch.Tensor, stored: Any) -> None:
    shape, offset = local_slice(parameter)
    if 0 in shape:
        return
    local(parameter).copy_(
        stored[tuple(slice(o, o + n) for o, n in zip(offset, shape, strict=True))]
    )
