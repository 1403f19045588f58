"""From `config.schema.model.Model` to a transformers configuration."""

import difflib
import re
from typing import Any

from transformers import AutoConfig, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from ringshard.config.schema.model import Model
from ringshard.errors import ConfigError, first_line


def architecture(model: Model, vocab_size: int) -> PretrainedConfig:
    """The transformers configuration of `model`.

    The vocabulary is that of the data where neither `model.config` nor a directory sets one.
    Raises ConfigError for an unknown type or field, or a vocabulary smaller than the data's.
    """
    directory = model.pretrained or model.path
    config = _from_directory(model, directory) if directory else _from_type(model, vocab_size)
    # The head's loss is ours, and generation recomputes: no module may keep keys and values.
    config.use_cache = False
    refuse_sizes(config)
    if config.vocab_size < vocab_size:
        raise ConfigError(
            f"model.config.vocab_size={config.vocab_size} is smaller than the data's {vocab_size} "
            f"token ids: set model.config.vocab_size={vocab_size} or more"
        )
    return config


def _from_directory(model: Model, directory: str) -> PretrainedConfig:
    options = {"trust_remote_code": model.trust_remote_code, "local_files_only": True}
    try:
        _refuse_unknown(AutoConfig.from_pretrained(directory, **options), model.config)
        return AutoConfig.from_pretrained(directory, **options, **model.config)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"model directory {directory}: no configuration could be read "
            f"({first_line(error)}): give a folder with a config.json"
        ) from error


def _from_type(model: Model, vocab_size: int) -> PretrainedConfig:
    kind = model.type or ""
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        near = difflib.get_close_matches(kind, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "see the transformers library"
        raise ConfigError(
            f"model.type={kind} is no causal language model of the transformers library: {hint}"
        )
    fields: dict[str, Any] = {"vocab_size": vocab_size, **model.config}
    _refuse_unknown(AutoConfig.for_model(kind), fields)
    try:
        # Tokens are the data's, so the type's default special tokens mean nothing here.
        specials = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
        return AutoConfig.for_model(kind, **{**specials, **fields})
    except Exception as error:  # strict dataclass validation raises library-private types
        raise misfit(model, AutoConfig.for_model(kind), error) from error


def misfit(model: Model, config: PretrainedConfig, error: Exception) -> ConfigError:
    """The sentence for what the library raised of a configuration; it names the field where the
    library does."""
    text = " ".join(str(error).split()) or type(error).__name__
    fields = {
        name: value
        for name, value in model.config.items()
        if text == repr(value)  # a KeyError
        or any(re.search(rf"\b{word}\b", text) for word in (name, name.replace("_", " ")))
    }
    given = ", ".join(f"model.config.{name}={value}" for name, value in fields.items())
    return ConfigError(
        f"{given or f'model.config={model.config}'} does not fit model.type={config.model_type}:"
        f" {type(error).__name__}, {text}"
    )


_AT_LEAST_ONE = (
    *("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads"),
    *("head_dim", "intermediate_size", "moe_intermediate_size"),
    "max_position_embeddings",
)


def refuse_sizes(config: PretrainedConfig) -> None:
    """Raises ConfigError for sizes that make no model, and probabilities that are none.

    The library builds some of those, and fails in the middle of a forward pass.
    """
    for name in _AT_LEAST_ONE:
        value = getattr(config, name, None)
        if isinstance(value, int) and value < 1:
            raise ConfigError(
                f"model.config.{config.attribute_map.get(name, name)}={value} must be at least 1"
            )
    heads, kv = (getattr(config, f"num_{kind}_heads", None) for kind in ("attention", "key_value"))
    if isinstance(heads, int) and isinstance(kv, int) and heads % kv:
        raise ConfigError(
            f"model.config.num_key_value_heads={kv} must divide num_attention_heads={heads}"
        )
    for name, value in config.to_dict().items():
        number = isinstance(value, int | float)
        if ("drop" in name and number) and not 0 <= value <= 1:
            raise ConfigError(f"model.config.{name}={value} must lie between 0 and 1")
        if "layerdrop" in name and value:
            raise ConfigError(
                f"model.config.{name}={value} must be 0: ranks that leave out other layers would"
                " wait for each other"
            )
    if getattr(config, "output_router_logits", False):
        raise ConfigError(
            "model.config.output_router_logits=True would have no effect: the loss has no term"
            " that balances experts, set it to false"
        )


def _refuse_unknown(default: PretrainedConfig, fields: dict[str, Any]) -> None:
    """transformers takes any keyword silently; a misspelt field would train another model."""
    known = set(default.to_dict()) | set(default.attribute_map)
    for name in fields:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "see its transformers configuration"
            raise ConfigError(
                f"model.config.{name} is not a field of model.type={default.model_type}: {hint}"
            )
