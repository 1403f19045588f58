"""What is known of a model without its weights: sizes that checks, FLOP counts and plans need."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Traits:
    """What a model's attention asks for; found by `ringshard.parallel.ring.probe`."""

    calls: list[int | None] = field(default_factory=list)
    """Layers that get their attention from the library, each as often as it does."""
    keywords_arrive: bool = True
    """Whether a keyword given to the model reaches attention."""
    asked: list[str] = field(default_factory=list)
    """Keywords of attention that mean another attention: softcap, s_aux, …"""
    masks: bool = False
    """Whether the model makes a mask of its own."""
    causal: bool = True
    """Whether attention is causal."""
    layer_types: list[str] = field(default_factory=list)
    """Kinds of layers that are neither full nor sliding attention."""
    rope: list[str] = field(default_factory=list)
    """Kinds of rotary embeddings whose frequencies the longest position can't be given to."""
    failure: str = ""
    """Why a pass could not be made; empty: it could."""


@dataclass(frozen=True)
class Weight:
    """A trained parameter."""

    name: str
    """As the model's author wrote it."""
    shape: list[int]
    """Of the whole parameter."""
    role: str
    """What it is to the model: one of `ringshard.config.roles.ROLES`."""
    transposed: bool
    """Whether it is stored (in, out)."""
    fused: bool = False
    """Whether it is several matrices, one after another in its outputs, or mixed."""
    sizes: list[int] = field(default_factory=list)
    """Outputs of each of them; empty: one matrix, or the order is not known."""


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
    weights: list[Weight] = field(default_factory=list)
    """The trained parameters, a tied one once."""
    traits: Traits | None = None
    """What its attention asks for; null: no pass was made to find out."""
