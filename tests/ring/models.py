"""Very small models of many types, and one pass of each: on one process, or cut over ranks."""

import copy
import datetime
from typing import Any

import torch
import torch.nn.functional as F
from ranks import run_ranks
from ring.whole import mask_of
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from ringshard.parallel.ring.documents import bounds_of_lengths, positions_of
from ringshard.parallel.ring.group import Ring, alone, open_ring
from ringshard.parallel.ring.share import Cutting, share
from ringshard.parallel.ring.transformers import NAME, fix_longest_position, register

VOCAB = 61
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
    "ffn_dim": 48, "num_layers": 2, "word_embed_proj_dim": 32, "rotary_dim": 8,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8,
    "v_head_dim": 8, "attn_pdrop": 0.0, "attention_dropout": 0.0, "attn_dropout": 0.0,
}  # fmt: skip
"""What a configuration is set to, of the fields that it has."""

TYPES: dict[str, dict[str, Any]] = {
    "arcee": {}, "biogpt": {"attention_probs_dropout_prob": 0.0}, "bloom": {}, "codegen": {},
    "cohere": {}, "cohere2": {}, "deepseek_v3": {"head_dim": 4, "num_key_value_heads": 4},
    "ernie4_5": {}, "exaone4": {},
    "falcon": {}, "gemma": {}, "gemma2": {}, "gemma3_text": {}, "glm": {}, "glm4": {}, "gpt2": {},
    "gpt_neox": {}, "gpt_oss": {}, "gptj": {}, "granite": {}, "granitemoe": {}, "helium": {},
    "hunyuan_v1_dense": {}, "lfm2": {"layer_types": ["conv", "full_attention"]}, "llama": {},
    "llama4_text": {}, "mistral": {"sliding_window": None}, "mixtral": {},
    "nemotron": {}, "olmo": {}, "olmo2": {}, "olmo3": {}, "opt": {}, "persimmon": {}, "phi": {},
    "phi3": {}, "qwen2": {}, "qwen2_moe": {}, "qwen3": {}, "qwen3_moe": {}, "qwen3_next": {},
    "seed_oss": {}, "smollm3": {}, "stablelm": {}, "starcoder2": {},
}  # fmt: skip
"""Types by name, with what a test needs beside the sizes."""

DOCUMENTS = [[20, 1, 24], [45]]
"""Lengths of the documents of each row, 45 tokens: cut over ranks there is padding."""


def tiny(kind: str, **fields: Any) -> PretrainedConfig:
    """A configuration of two small layers."""
    default = AutoConfig.for_model(kind)
    aliases = getattr(default, "attribute_map", {})
    known = {n: v for n, v in SIZES.items() if n in default.to_dict() and n not in aliases}
    config = AutoConfig.for_model(kind, **{**known, **TYPES.get(kind, {}), **fields})
    config.use_cache = False
    return config


def build(config: PretrainedConfig, attention: str, device: str = "cpu") -> PreTrainedModel:
    """The model, equal at each call; the library would write into the configuration."""
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(
            copy.deepcopy(config), attn_implementation=attention
        )
    return model.eval()


def batch() -> dict[str, tuple[Tensor, int]]:
    """Tokens, targets and positions (B, S), and what each is padded with."""
    g = torch.Generator().manual_seed(1)
    rows = torch.randint(VOCAB, (len(DOCUMENTS), 46), generator=g)
    positions = [positions_of(bounds_of_lengths(lengths)) for lengths in DOCUMENTS]
    return {
        "input_ids": (rows[:, :-1], 0),
        "targets": (rows[:, 1:], -100),
        "position_ids": (torch.stack([torch.from_numpy(p) for p in positions]), 0),
    }


Pass = dict[str, Any]
"""loss, logits (B, S, V), gradients by name."""


def on_one(config: PretrainedConfig) -> Pass:
    """torch's attention with the mask written out."""
    tensors = {name: tensor for name, (tensor, _) in batch().items()}
    mask = mask_of([bounds_of_lengths(lengths) for lengths in DOCUMENTS])
    return run_ranks(1, _pass, build(config, "sdpa"), tensors, {"attention_mask": mask})[0]


def on_ranks(world: int, config: PretrainedConfig, cutting: Cutting | None = None) -> Pass:
    """The same over a ring: losses and gradients of the ranks summed, logits put together."""
    parts = run_ranks(world, _part, config, cutting or Cutting(check=True))
    layout = parts[0]["layout"]
    return {
        "loss": sum(part["loss"] for part in parts),
        "logits": layout.unshard([part["logits"] for part in parts])[:, :45],
        "gradients": {
            name: sum(part["gradients"][name] for part in parts) for name in parts[0]["gradients"]
        },
    }


def _part(config: PretrainedConfig, cutting: Cutting) -> Pass:
    register()
    model = build(config, NAME)
    fix_longest_position(model, 45)
    part = share(world_ring(), [bounds_of_lengths(lengths) for lengths in DOCUMENTS], batch(),
                 cutting)  # fmt: skip
    return _pass(model, part.tensors, {"ring": part.state}) | {"layout": part.layout}


def world_ring() -> Ring:
    """The ring of all ranks."""
    world = torch.distributed.get_world_size()
    if world == 1:
        return alone()
    return open_ring([range(world)], torch.device("cpu"), datetime.timedelta(seconds=30))


def _pass(model: PreTrainedModel, tensors: dict[str, Tensor], extra: dict[str, Any]) -> Pass:
    inputs = {name: tensors[name] for name in ("input_ids", "position_ids")}
    logits = model(**inputs, **extra, use_cache=False).logits
    targets = tensors["targets"]
    loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum") / 90
    loss.backward()
    gradients = {
        name: torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in model.named_parameters()
    }
    return {"loss": loss.detach(), "logits": logits.detach(), "gradients": gradients}


def differences(found: Pass, wanted: Pass) -> dict[str, float]:
    """Largest absolute differences of loss, logits and gradients."""
    return {
        "loss": float((found["loss"] - wanted["loss"]).abs()),
        "logits": float((found["logits"] - wanted["logits"]).abs().max()),
        "gradients": max(
            float((found["gradients"][name] - gradient).abs().max())
            for name, gradient in wanted["gradients"].items()
        ),
    }
