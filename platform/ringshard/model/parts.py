"""Where the parts of a transformers causal language model are: blocks, embedding, norm, head."""

from dataclasses import dataclass
from typing import cast

from torch import nn
from transformers import PreTrainedModel

from ringshard.errors import ConfigError


@dataclass(frozen=True)
class Parts:
    """Modules of a model that are sharded, compiled or checkpointed as units."""

    blocks: nn.ModuleList
    embedding: nn.Module
    head: nn.Module
    others: tuple[nn.Module, ...]
    """Modules of the base model beside blocks and embedding that own parameters (final norm,
    positions)."""
    tied: bool
    """Whether head and embedding share their weight."""


def parts(model: PreTrainedModel) -> Parts:
    """The parts of `model`; raises ConfigError where it has no single list of blocks."""
    stack, blocks = _blocks(model)
    embedding = model.get_input_embeddings()
    head = cast(nn.Linear, model.get_output_embeddings())
    others = tuple(
        child
        for child in stack.children()
        if child is not blocks and child is not embedding and any(True for _ in child.parameters())
    )
    return Parts(blocks, embedding, head, others, tied=head.weight is embedding.weight)


def _blocks(model: PreTrainedModel) -> tuple[nn.Module, nn.ModuleList]:
    """The list of blocks, and the module that holds it."""
    count = model.config.num_hidden_layers
    found = [
        (module, child)
        for module in model.base_model.modules()
        for child in module.children()
        if isinstance(child, nn.ModuleList) and len(child) == count
    ]
    if len(found) != 1:
        raise ConfigError(
            f"model.type={model.config.model_type} has {len(found)} lists of {count} blocks, and "
            "sharding goes by one: choose a decoder of equal blocks"
        )
    return found[0]
