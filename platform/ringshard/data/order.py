"""The order in which rows are read: a keyed permutation that takes no memory.

A Feistel network permutes 0 … 4^h - 1; walking its cycles until a value falls below `size` makes
that a permutation of 0 … size - 1 (Black & Rogaway 2002, "Ciphers with Arbitrary Finite Domains").
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

_ROUNDS = 6
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection that scrambles 64-bit numbers (SplitMix64's finalizer, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def keyed(*parts: ArrayLike) -> NDArray[np.uint64]:
    """One 64-bit key from integers of any sign; arrays among them give an array of keys."""
    key = np.zeros((), dtype=np.uint64)
    for part in parts:
        with np.errstate(over="ignore"):
            key = mix(key + _GOLDEN + np.asarray(part).astype(np.int64).view(np.uint64))
    return key


def permute(position: NDArray[np.int64], size: int, key: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Where the permutations of 0 … size - 1 chosen by `key` (one, or one each) send `position`."""
    half = max(1, -(-(size - 1).bit_length() // 2))  # bits of half a block
    value, keys = position.astype(np.uint64), np.broadcast_to(key, position.shape)
    outside = np.ones(position.shape, dtype=bool)
    while outside.any():
        value[outside] = _feistel(value[outside], half, keys[outside])
        outside = value >= np.uint64(size)
    return value.astype(np.int64)


def _feistel(value: NDArray[np.uint64], half: int, key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = value >> bits, value & mask
    for _ in range(_ROUNDS):
        with np.errstate(over="ignore"):
            key = key + _GOLDEN
        # The high bits: the low ones of a product depend on the low bits of its factors alone.
        left, right = right, left ^ (mix(mix(key) ^ right) >> (np.uint64(64) - bits))
    return (left << bits) | right
