"""Which models ring attention refuses, and what would work instead: from plain descriptions.

Standard library only, so that the submit side may use it.
"""

from collections import Counter

from ringshard.config.schema.description import Description, Traits

_SDPA = "parallelism.attention=sdpa with cp=1"

_MEANINGS = {
    "softcap": "caps its scores",
    "s_aux": "has attention sinks",
    "position_bias": "adds a bias to its scores",
    "chunk_size": "attends within chunks",
    "head_mask": "masks heads",
}


def refusals(description: Description, traits: Traits, trains: bool = True) -> list[str]:
    """Why ring attention can't run this model, each as one sentence with what would work; none: it
    can.

    trains: whether weights are dropped at all; a model that is only evaluated drops none.
    """
    dropping = _of_dropout(description) if trains else []
    return [
        f"ring attention can't run {description.model_type}: {reason}"
        for reason in [*_of_window(description), *dropping, *_of_pass(description, traits)]
    ]


def _of_window(description: Description) -> list[str]:
    reasons = []
    if description.sliding_layers:
        window = description.sliding_window
        reasons.append(
            f"{description.sliding_layers} layers see {window} keys, and ring attention whole "
            f"documents: set model.config.sliding_window=null (the same for data.seq_len up to "
            f"{window}), or use {_SDPA}"
        )
    return reasons


def _of_dropout(description: Description) -> list[str]:
    return [
        f"it drops attention weights: set model.config.{name}=0 (now {value:g})"
        for name, value in description.dropouts.items()
        if "att" in name
    ]


def _of_pass(description: Description, traits: Traits) -> list[str]:
    if traits.failure:
        return [f"a pass on the meta device failed ({traits.failure}): use {_SDPA}"]
    if traits.layer_types:
        kinds = ", ".join(traits.layer_types)
        return [f"it has layers of another kind ({kinds}) that mix tokens: use {_SDPA}"]
    if Counter(traits.calls) != Counter(range(description.layers)):
        return [
            f"{len(traits.calls)} of its {description.layers} layers get attention from the "
            f"library, the others compute it themselves: use {_SDPA}"
        ]
    return [f"{reason}: use {_SDPA}" for reason in _of_calls(traits)]


def _of_calls(traits: Traits) -> list[str]:
    reasons = [f"it {_MEANINGS[keyword]}" for keyword in traits.asked if keyword in _MEANINGS]
    if not traits.keywords_arrive:
        reasons.append("it keeps keywords from its layers, which need to know the documents")
    if traits.masks:
        reasons.append("it makes an attention mask of its own")
    if not traits.causal:
        reasons.append("its attention is not causal")
    if traits.rope:
        reasons.append(f"its rotary embeddings ({', '.join(traits.rope)}) follow the batch")
    return reasons
