"""What the simplest models could reach on a split, in nats per token: a yardstick for a loss."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringshard.data.tokenizer import Ids

LARGEST_VOCABULARY = 4096  # the table of counts has its square as entries


class Entropy(NamedTuple):
    """Entropies of a split's own counts [nats per token]: no such model has a lower loss on it."""

    unigram: float
    """H(next), of the tokens that are a target."""
    bigram: float
    """H(next | previous) = -sum over (p, n) of c(p, n) / N * log(c(p, n) / c(p))."""


def entropy(pairs: Iterable[tuple[Ids, Ids]], vocab: int) -> Entropy:
    """Entropies of the pairs (previous, next) given in blocks of two equally long arrays."""
    counts = np.zeros(vocab * vocab, dtype=np.int64)
    for previous, following in pairs:
        counts += np.bincount(previous * vocab + following, minlength=vocab * vocab)
    table = counts.reshape(vocab, vocab)  # (previous, next)
    joint, before, after = (_plogp(part) for part in (table, table.sum(1), table.sum(0)))
    return Entropy(unigram=after, bigram=joint - before)


def _plogp(counts: NDArray[np.int64]) -> float:
    """The entropy of counts [nats]."""
    share = counts[counts > 0] / max(1, counts.sum())
    return float(-(share * np.log(share)).sum()) + 0.0  # no negative zero
