"""What attention of a model asks for, found by a forward pass on the meta device.

A pass shows what no configuration says: layers that compute attention themselves, and models that
keep keywords to themselves.
"""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from ringshard.config.schema.description import Traits
from ringshard.parallel.ring.transformers import FOREIGN, SCALED_BY_LENGTH

_NAME = "ring_probe"
_TOKENS = 8


def probe(model: PreTrainedModel) -> Traits:
    """Traits of a model on the meta device; the model stays as it is."""
    probed = deepcopy(model).to(torch.bfloat16)  # which grouped products of experts insist on
    calls: list[dict[str, Any]] = []
    AttentionInterface.register(_NAME, _recorder(calls))
    failure = ""
    try:
        probed.config._attn_implementation = _NAME
        _forward(probed)
    except Exception as error:  # whatever a model's own code may raise
        failure = f"{type(error).__name__}: {error}".splitlines()[0]
    asked = {keyword for call in calls for keyword in call["asked"]} - {"sliding_window"}
    return Traits(
        calls=[call["layer"] for call in calls],
        keywords_arrive=all(call["arrives"] for call in calls),
        asked=sorted(asked),
        masks=any(call["masks"] for call in calls),
        causal=all(call["causal"] for call in calls),
        layer_types=_other_layers(model.config),
        rope=_unfixable_rope(model),
        failure=failure,
    )


def _forward(model: PreTrainedModel) -> None:
    tokens = torch.zeros(1, _TOKENS, dtype=torch.int64, device="meta")
    positions = torch.arange(_TOKENS, device="meta")[None]
    with torch.no_grad():
        model.base_model(input_ids=tokens, position_ids=positions, use_cache=False, ring=_NAME)


def _recorder(calls: list[dict[str, Any]]) -> Any:
    def attend(
        module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **others: Any
    ) -> tuple[Tensor, None]:
        causal = others.get("is_causal")
        calls.append(
            {
                "layer": getattr(module, "layer_idx", None),
                "arrives": others.get("ring") == _NAME,
                "asked": [keyword for keyword in FOREIGN if others.get(keyword) is not None],
                "masks": mask is not None,
                "causal": getattr(module, "is_causal", True) if causal is None else causal,
            }
        )
        return q.new_empty(*q.transpose(1, 2).shape[:3], v.shape[-1]), None  # (B, S, Hq, Dv)

    return attend


def _other_layers(config: Any) -> list[str]:
    kinds = set(getattr(config, "layer_types", None) or ())
    return sorted(kinds - {"full_attention", "sliding_attention", "attention"})


def _unfixable_rope(model: nn.Module) -> list[str]:
    """A module with several kinds at once is not one that `fix_longest_position` knows."""
    several = [
        kind
        for module in model.modules()
        if isinstance(getattr(module, "rope_type", None), dict)
        for kind in module.rope_type.values()  # type: ignore[operator]
    ]
    return sorted({str(kind) for kind in several if kind in SCALED_BY_LENGTH})
