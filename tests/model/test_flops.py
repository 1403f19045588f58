"""The FLOP formula against torch's counter."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from ringshard.config.schema.model import Model
from ringshard.model.architecture import architecture
from ringshard.model.describe import describe_built
from ringshard.model.flops import mean_keys, per_token

BATCH, SEQ_LEN = 2, 24
LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}


@pytest.mark.parametrize(
    ("kind", "config"),
    [("llama", LLAMA), ("llama", LLAMA | {"tie_word_embeddings": True}), ("gpt2", GPT2)],
)
def test_products_are_exact_and_attention_is_the_causal_part(
    kind: str, config: dict[str, Any]
) -> None:
    chosen = architecture(Model(type=kind, config=config), 97)
    model = AutoModelForCausalLM.from_config(chosen, attn_implementation="eager")
    products, attention = counted(model)
    description = describe_built(model)
    tokens = BATCH * SEQ_LEN
    assert tokens * 6 * description.matmul_parameters == products
    # Eager attention computes all S keys of each query; (S + 1) / 2 of them are not masked.
    causal = attention * (SEQ_LEN + 1) / (2 * SEQ_LEN)
    assert tokens * per_token(description, SEQ_LEN) == products + causal


def counted(model: Any) -> tuple[int, int]:
    """FLOPs of products with weights, and of attention without its rotary angles."""
    ids = torch.arange(BATCH * SEQ_LEN).view(BATCH, SEQ_LEN) % 97
    with FlopCounterMode(display=False) as counter:
        model(ids, use_cache=False).logits.sum().backward()
    counts = counter.get_flop_counts()
    rotary = sum(sum(ops.values()) for name, ops in counts.items() if name.endswith("rotary_emb"))
    by_op = {str(op): flops for op, flops in counts["Global"].items()}
    return by_op.get("aten.mm", 0) + by_op.get("aten.addmm", 0), by_op["aten.bmm"] - rotary


@pytest.mark.parametrize("window", [None, 1, 3, 10, 50])
def test_mean_keys_is_the_mean_over_the_queries(window: int | None) -> None:
    seen = [min(i, window or 10) for i in range(1, 11)]
    assert mean_keys([10], window) == sum(seen) / 10


def test_a_sliding_window_costs_less() -> None:
    config = LLAMA | {"sliding_window": 8}
    model = Model(type="mistral", config=config)
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(architecture(model, 97))
    description = describe_built(built)
    assert (description.sliding_window, description.sliding_layers) == (8, 2)
    attention = per_token(description, 64) - 6 * description.matmul_parameters
    assert attention == 12 * 4 * 16 * 2 * mean_keys([64], 8)
