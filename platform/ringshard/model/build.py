"""The model as an object: on the meta device first, with its head and loss made one module."""

from collections.abc import Callable
from types import MethodType
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from ringshard import registry
from ringshard.config.schema.model import Model
from ringshard.errors import ConfigError
from ringshard.model.architecture import architecture, misfit, refuse_sizes
from ringshard.model.head import chunked_cross_entropy


class HeadLoss(nn.Linear):
    """The output projection and its cross-entropy as one module.

    FSDP gathers a weight around the forward of the module that owns it, and the loss by chunks
    wants the weight itself.
    """

    chunk: int

    @classmethod
    def adopt(cls, head: nn.Linear, chunk: int) -> None:
        """Turns a model's own head into this class, parameters and their names untouched."""
        head.__class__ = cls
        cast(HeadLoss, head).chunk = chunk

    def forward(self, hidden: Tensor, targets: Tensor | None = None) -> Any:
        """hidden (B, S, D), targets (B, S): see `forward_loss`."""
        if targets is None:
            return super().forward(hidden)
        flat = hidden.flatten(0, 1)  # (B·S, D)
        return chunked_cross_entropy(flat, self.weight, self.bias, targets.flatten(), self.chunk)


def build_on_meta(model: Model, vocab_size: int) -> PreTrainedModel:
    """`model` without storage, in fp32; its forward is `forward_loss`.

    Raises ConfigError where the configuration does not make a causal language model.
    """
    with torch.device("meta"):
        own = model.type in registry.registered("model")
        built = _registered(model, vocab_size) if own else _from_transformers(model, vocab_size)
    head = built.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise ConfigError(f"model.type={model.type} has no linear output head: it can't be trained")
    HeadLoss.adopt(head, model.head_chunk)
    built.forward = MethodType(_blaming(str(model.type)) if own else forward_loss, built)
    return built


def _registered(model: Model, vocab_size: int) -> PreTrainedModel:
    builder = registry.lookup("model", str(model.type))
    with registry.blamed(f"model.type={model.type}"):
        built = builder(model.config, vocab_size)
    if not isinstance(built, PreTrainedModel):
        raise ConfigError(
            f"model.type={model.type} made a {type(built).__name__}: return a PreTrainedModel of"
            " transformers"
        )
    refuse_sizes(built.config)
    return built


def _from_transformers(model: Model, vocab_size: int) -> PreTrainedModel:
    config = architecture(model, vocab_size)
    try:
        try:
            return _from_config(model, config, "sdpa")
        except ValueError:  # the library's way to say that a type has no such attention
            return _from_config(model, config, "eager")
    except Exception as error:  # whatever the library's models raise for values they can't take
        raise misfit(model, config, error) from error


def _from_config(model: Model, config: PretrainedConfig, attention: str) -> PreTrainedModel:
    built = AutoModelForCausalLM.from_config(
        config,
        dtype=torch.float32,
        attn_implementation=attention,
        trust_remote_code=model.trust_remote_code,
    )
    return cast(PreTrainedModel, built)


def forward_loss(
    self: PreTrainedModel, input_ids: Tensor, targets: Tensor | None = None, **kwargs: Any
) -> Any:
    """Loss of each token, or logits.

    input_ids (B, S); targets (B, S), -100 where a token does not count.
    Returns (sum of the losses, loss of each token (B·S,) without gradient, and in evaluation
    whether each target is the likeliest token), or, without targets, logits (B, S, V).
    """
    output = self.base_model(input_ids=input_ids, **kwargs)
    return self.get_output_embeddings()(output.last_hidden_state, targets)


def _blaming(kind: str) -> Callable[..., Any]:
    """`forward_loss` of a model of the user's: what its own code raises is told in one sentence.

    What the machine or another rank brought about is no mistake of the model's.
    """

    def forward(self: PreTrainedModel, input_ids: Tensor, *given: Any, **kwargs: Any) -> Any:
        try:
            return forward_loss(self, input_ids, *given, **kwargs)
        except (torch.OutOfMemoryError, dist.DistError):
            raise
        except Exception as error:
            if "gloo" in str(error):  # which has no class of errors of its own
                raise
            with registry.blamed(f"model.type={kind}"):
                raise

    return forward


def library_logits(model: PreTrainedModel, input_ids: Tensor, **context: Any) -> Tensor:
    """The logits (B, S, V) of the library's own forward, for comparison with ours."""
    return cast(Tensor, type(model).forward(model, input_ids=input_ids, **context).logits)
