"""What is known of a model without its weights: sizes that checks, FLOP counts and plans need."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Description:
    """Made by `ringshard.model.describe`; `ringshard.config.description` has it without torch."""

    model_type: str
    """transformers `model_type`."""
    vocab_size: int
    """Rows of the embedding [tokens]."""
    layers: int
    """Transformer blocks."""
    hidden: int
    """Width of the residual stream."""
    heads: int
    """Query heads of a block."""
    kv_heads: int
    """Key and value heads of a block."""
    head_dim: int
    """Width of a head."""
    max_positions: int | None
    """Longest sequence it is made for [tokens]; null: no limit is known."""
    learned_positions: bool
    """Whether positions are a table of that length, so that a longer sequence can't run."""
    parameters: int
    """All parameters; a tied weight counts once."""
    parameters_without_embeddings: int
    """Parameters that are in no embedding; a tied head is one, a separate head is not."""
    matmul_parameters: int
    """Weights that a token is multiplied with: the head's too, no embedding, no idle expert."""
    tied: bool
    """Whether head and embedding share their weight."""
    dropouts: dict[str, float]
    """Fields of the configuration that drop something, with their probability."""
    sliding_window: int | None
    """Keys that a query of a sliding layer sees [tokens]; null: no layer has a window."""
    sliding_layers: int
    """Blocks with that window."""
