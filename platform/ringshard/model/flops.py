"""Floating-point operations of training, counted as the mathematics needs them."""

from collections.abc import Sequence

from ringshard.config.schema.description import Description


def per_token(description: Description, *documents: int) -> float:
    """FLOPs of forward and backward pass per token, on average over documents of these lengths
    [tokens], each of which attends to itself alone.

    6·N + 12·H·Dh·Σ_l K_l, with N the weights that a token is multiplied with, H query heads of
    width Dh, and K_l the keys that a query of layer l sees, on average.

    A product costs 2 per weight forward and twice that backward (Kaplan et al. 2020,
    arXiv:2001.08361, section 2.1). A query costs 2·Dh per key for its score and as much for the
    value. Masked keys are not counted: K = (S + 1) / 2 for a causal mask, about half of what the
    formula of PaLM (Chowdhery et al. 2022, arXiv:2204.02311, appendix B) has. Nor is what is
    computed again (activation checkpointing) counted, nor norms, softmax, rotations. Exact for
    dense transformers with softmax attention; of a mixture, the active experts.
    """
    windowed = description.sliding_layers
    keys = windowed * mean_keys(documents, description.sliding_window)
    keys += (description.layers - windowed) * mean_keys(documents, None)
    attention = 12 * description.heads * description.head_dim * keys
    return 6 * description.matmul_parameters + attention


def mean_keys(documents: Sequence[int], window: int | None) -> float:
    """Keys that a query sees, itself included, on average over documents of these lengths: the sum
    of min(i, window) over their tokens i = 1 … n, / Σ n."""
    pairs = 0.0
    for length in documents:
        near = min(window or length, length)
        pairs += near * (near + 1) / 2 + (length - near) * near
    return pairs / sum(documents)
