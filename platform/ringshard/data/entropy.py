"""What a model of token pairs could reach on a split: a yardstick for a loss."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ringshard.data.tokenizer import Ids

LARGEST_VOCABULARY = 4096  # the table of counts has its square as entries


def bigram(pairs: Iterable[tuple[Ids, Ids]], vocab: int) -> float:
    """H(next | previous) = -sum over (p, n) of c(p, n) / N * log(c(p, n) / c(p)) [nats per token].

    Of a split's own counts, so no model of pairs has a lower loss on it. The pairs (previous, next)
    are given in blocks of two equally long arrays.
    """
    counts = np.zeros(vocab * vocab, dtype=np.int64)
    for previous, following in pairs:
        counts += np.bincount(previous * vocab + following, minlength=vocab * vocab)
    table = counts.reshape(vocab, vocab)  # (previous, next)
    return _plogp(table) - _plogp(table.sum(1))


def _plogp(counts: NDArray[np.int64]) -> float:
    """The entropy of counts [nats]."""
    share = counts[counts > 0] / max(1, counts.sum())
    return float(-(share * np.log(share)).sum()) + 0.0  # no negative zero
