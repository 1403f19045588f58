"""Which corpus a row comes from: exact shares, with no state.

Corpus 0 takes row k where floor((k + 1) * share) > floor(k * share): of the first n rows it has
floor(n * share), whatever n is. What it leaves over is numbered anew and divided among the others.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ringshard.errors import ConfigError

_FINEST = 1 << 20  # k * numerator stays below 2^63 up to 2^43 rows


def shares(weights: dict[str, float]) -> list[Fraction]:
    """The share of each corpus in what the corpora before it leave over; the last one is 1."""
    left, result = sum(map(Fraction, weights.values()), Fraction(0)), []
    for name, weight in weights.items():
        share = (Fraction(weight) / left).limit_denominator(_FINEST)
        left -= Fraction(weight)
        if share == 0 or (share == 1 and left > 0):
            raise ConfigError(
                f"data.corpora.{name}.weight={weight} is too far from the other weights: "
                f"keep their ratio below {_FINEST}"
            )
        result.append(share)
    return result


def assign(
    row: NDArray[np.int64], shares: Sequence[Fraction]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The corpus of each row of the mixture, and how many rows of that corpus come before it."""
    corpus = np.full(row.shape, len(shares) - 1, dtype=np.int64)
    rank = row.copy()  # its number among the rows not taken so far, in the end within its corpus
    open_ = np.ones(row.shape, dtype=bool)
    for number, share in enumerate(shares[:-1]):
        before = rank * share.numerator // share.denominator
        taken = open_ & ((rank + 1) * share.numerator // share.denominator > before)
        corpus[taken] = number
        rank = np.where(taken, before, np.where(open_, rank - before, rank))
        open_ &= ~taken
    return corpus, rank
