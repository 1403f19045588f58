"""Generators of random numbers of each rank, as tensors under names of their own.

The trainer seeds torch anew at each step; this is for what a user's code draws.
"""

import random
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

PREFIX = "random."


def uses_gpu() -> bool:
    """Whether this process has begun to: a job on CPUs leaves the GPUs of its machine alone."""
    begun: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return begun


def seed(number: int) -> None:
    """Seeds the generators that the trainer does not seed by itself."""
    random.seed(number)
    np.random.seed(number % 2**32)


def is_one(name: str) -> bool:
    """Whether a stored tensor of that name is the state of a generator."""
    return name.startswith(PREFIX)


def current() -> dict[str, Tensor]:
    """The states of this rank, by name."""
    _, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = cast(tuple[Any, ...], np.random.get_state())
    found = {
        "python": torch.tensor([*words, gauss is not None, _bits(gauss or 0.0)]),
        "numpy": torch.tensor([*keys.tolist(), position, has_gauss, _bits(cached)]),
        "torch": torch.get_rng_state(),
    }
    if uses_gpu():
        found["cuda"] = torch.cuda.get_rng_state()
    return {f"{PREFIX}{_rank()}.{name}": state for name, state in found.items()}


def wanted(stored: Iterable[str], world_size: int) -> dict[str, Tensor]:
    """Tensors to be filled with this rank's states; none where they were of other ranks."""
    if world_size != (dist.get_world_size() if dist.is_initialized() else 1):
        return {}
    there = set(stored)
    return {name: state for name, state in current().items() if name in there}


def restore(filled: Mapping[str, Tensor]) -> None:
    """Puts this rank's generators into the states among `filled`."""
    states = {name.rsplit(".", 1)[1]: t for name, t in filled.items() if is_one(name)}
    for name, state in states.items():
        _SETTERS[name](state)


def _set_python(state: Tensor) -> None:
    *words, has_gauss, gauss = state.tolist()
    random.setstate((3, tuple(words), _number(gauss) if has_gauss else None))


def _set_numpy(state: Tensor) -> None:
    *keys, position, has_gauss, cached = state.tolist()
    np.random.set_state(
        ("MT19937", np.array(keys, dtype=np.uint32), position, has_gauss, _number(cached))
    )


_SETTERS: dict[str, Any] = {
    "python": _set_python,
    "numpy": _set_numpy,
    "torch": torch.set_rng_state,
    "cuda": torch.cuda.set_rng_state,
}


def _bits(number: float) -> int:
    return int(np.float64(number).view(np.int64))


def _number(bits: int) -> float:
    return float(np.int64(bits).view(np.float64))


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0
