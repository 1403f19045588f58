"""Sizes of a model, counted on the meta device.

`python -m ringshard.model.describe` reads {"model": …, "vocab_size": …, "user": …} on stdin and
prints the description as JSON; a user's mistake is one sentence on stderr and exit code 2.
"""

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from ringshard import child, registry
from ringshard.config.schema.description import Description
from ringshard.config.schema.job import User
from ringshard.config.schema.model import Model
from ringshard.config.schema.reader import build
from ringshard.model.build import build_on_meta
from ringshard.model.init import record_rules
from ringshard.model.parts import parts
from ringshard.optim.roles import parameters as trained
from ringshard.parallel.ring.probe import probe

# Fields of heads for classification, which a language model has not.
_OTHER_HEADS = ("summary_", "classifier_")


def describe(model: Model, vocab_size: int) -> Description:
    """The description of `model` for data of `vocab_size` token ids.

    Raises ConfigError for a model that can't be built, sharded by blocks, or initialised by name.
    """
    own = model.type in registry.registered("model")
    with registry.blamed(f"model.type={model.type}") if own else nullcontext():
        built = build_on_meta(model, vocab_size)
        parts(built)
        if not model.pretrained:
            record_rules(built)
        return replace(describe_built(built), traits=probe(built))


def describe_built(model: PreTrainedModel) -> Description:
    """The description of a model that exists, on the meta device or not, sharded or not."""
    config: Any = model.config
    heads = config.num_attention_heads
    embeddings = {id(p): p.numel() for module in _embeddings(model) for p in module.parameters()}
    parameters = sum(parameter.numel() for parameter in model.parameters())
    window, sliding = _windows(config)
    return Description(
        model_type=config.model_type,
        vocab_size=config.vocab_size,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        max_positions=getattr(config, "max_position_embeddings", None),
        learned_positions=len(_embeddings(model)) > 1,
        parameters=parameters,
        parameters_without_embeddings=parameters - sum(embeddings.values()),
        matmul_parameters=_matmul_parameters(model),
        tied=parts(model).tied,
        dropouts=_dropouts(config),
        sliding_window=window,
        sliding_layers=sliding,
        weights=[parameter.weight for parameter in trained(model)],
    )


def _embeddings(model: nn.Module) -> list[nn.Embedding]:
    return [module for module in model.modules() if isinstance(module, nn.Embedding)]


def _matmul_parameters(model: PreTrainedModel) -> int:
    """Weights of all matrices but embeddings; of stacked experts, as many as a token visits."""
    active_experts = getattr(model.config, "num_experts_per_tok", None)
    total = 0
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            continue
        for weight in module.parameters(recurse=False):
            if weight.dim() == 2:
                total += weight.numel()
            elif weight.dim() == 3 and active_experts:  # (experts, out, in)
                total += weight.numel() // weight.shape[0] * active_experts
    return total


def _windows(config: Any) -> tuple[int | None, int]:
    """The sliding window, and how many blocks have it."""
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    sliding = types.count("sliding_attention") if window else 0
    return (window, sliding) if sliding else (None, 0)


def _dropouts(config: Any) -> dict[str, float]:
    """Probabilities that are not 0, by the name of their field."""
    return {
        name: value
        for name, value in config.to_dict().items()
        if ("drop" in name or "jitter" in name)
        and not name.startswith(_OTHER_HEADS)
        and isinstance(value, int | float)
        and value > 0
    }


def main() -> int:
    """See the module's docstring."""
    return child.answer(_tell_description)


def _tell_description() -> None:
    asked = json.load(sys.stdin)
    registry.import_user_modules(build(User, asked["user"]))
    description = describe(build(Model, asked["model"]), asked["vocab_size"])
    print(json.dumps(asdict(description)))


if __name__ == "__main__":
    sys.exit(main())
