"""Floating-point operations of training, counted as the mathematics needs them."""

from ringshard.config.schema.description import Description


def per_token(description: Description, seq_len: int) -> float:
    """FLOPs of forward and backward pass per token of a row of `seq_len` tokens.

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
    keys = windowed * mean_keys(seq_len, description.sliding_window)
    keys += (description.layers - windowed) * mean_keys(seq_len, None)
    attention = 12 * description.heads * description.head_dim * keys
    return 6 * description.matmul_parameters + attention


def mean_keys(seq_len: int, window: int | None) -> float:
    """Keys that a query sees, itself included, on average over a row: sum of min(i, window) / S."""
    near = min(window or seq_len, seq_len)
    return (near * (near + 1) / 2 + (seq_len - near) * near) / seq_len
