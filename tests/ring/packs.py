"""Document patterns of a packed row, and hypothesis strategies over them."""

import numpy as np
from hypothesis import strategies as st

from ringshard.parallel.ring.documents import Ints, bounds_of_lengths, padded
from ringshard.parallel.ring.layout import CHUNKS_PER_RANK, LAYOUTS, Layout, padded_length

PATTERNS = {
    "one": lambda n: [n],
    "two equal": lambda n: [n // 2, n - n // 2],
    "edge": lambda n: _cut(n, [n // 4]),
    "edge + 1": lambda n: _cut(n, [n // 4 + 1, n // 2 + 1]),
    "edge - 1": lambda n: _cut(n, [n // 4 - 1, n // 2 - 1]),
    "singles": lambda n: [1] * n,
    "threes": lambda n: [3] * (n // 3) + [n % 3],
    "long and short": lambda n: [n // 2] + [2] * ((n - n // 2) // 2) + [(n - n // 2) % 2],
    "short and long": lambda n: [1, 2, n - 3],
}
"""Lengths of the documents of a row of n tokens; a length of 0 is no document."""


def _cut(length: int, cuts: list[int]) -> list[int]:
    inside = sorted({cut for cut in cuts if 0 < cut < length})
    return np.diff([0, *inside, length]).tolist()


def row(pattern: str, true_length: int, length: int) -> Ints:
    """Bounds of a padded row with this pattern in its first tokens."""
    return padded(bounds_of_lengths(PATTERNS[pattern](true_length)), length)


def lognormal(length: int, mean: float, seed: int = 0) -> Ints:
    """Bounds of documents of lognormal lengths that fill `length` tokens."""
    sizes = np.random.default_rng(seed).lognormal(np.log(mean), 1.0, length).astype(int) + 1
    ends = np.cumsum(sizes)
    return np.append(np.concatenate([[0], ends[ends < length]]), length).astype(np.int64)


@st.composite
def cut_rows(draw: st.DrawFn) -> tuple[Layout, list[Ints]]:
    """Any rows of any true length, padded, and a layout of them."""
    name = draw(st.sampled_from(sorted(LAYOUTS)))
    cp = draw(st.integers(1, 6))
    true_lengths = draw(st.lists(st.integers(1, 70), min_size=1, max_size=3))
    length = padded_length(max(true_lengths), cp, CHUNKS_PER_RANK[name])
    rows = []
    for true in true_lengths:
        cuts = draw(st.sets(st.integers(1, true), max_size=8))
        bounds = np.array(sorted({0, *cuts, true}), dtype=np.int64)
        rows.append(padded(bounds, length))
    return LAYOUTS[name](rows, cp), rows
