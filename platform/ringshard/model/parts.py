"""Where the parts of a transformers causal language model are: blocks, embedding, norm, head."""

from dataclasses import dataclass
from typing import cast

from torch import nn
from transformers import PreTrainedModel


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
    """The parts of `model`."""
    base = model.base_model
    blocks = _blocks(model)
    embedding = model.get_input_embeddings()
    head = cast(nn.Module, model.get_output_embeddings())
    others = tuple(
        child
        for child in base.children()
        if child is not blocks and child is not embedding and any(True for _ in child.parameters())
    )
    return Parts(blocks, embedding, head, others, tied=bool(model.config.tie_word_embeddings))


def _blocks(model: PreTrainedModel) -> nn.ModuleList:
    count = model.config.num_hidden_layers
    lists = [
        child
        for child in model.base_model.children()
        if isinstance(child, nn.ModuleList) and len(child) == count
    ]
    assert len(lists) == 1, f"{type(model).__name__}: {len(lists)} lists of {count} blocks"
    return lists[0]
