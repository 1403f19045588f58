"""Who gets which rule, and how fused matrices are taken apart."""

from typing import Any

import pytest
import torch
from optim.networks import Matrices
from torch import nn
from transformers import PreTrainedModel

from ringshard.config.roles import check_weights
from ringshard.config.schema.model import Model
from ringshard.config.schema.optimizer import AdamW, Muon, Optimizer
from ringshard.errors import ConfigError
from ringshard.model.build import build_on_meta
from ringshard.model.describe import describe_built
from ringshard.optim import build, who_gets_what
from ringshard.optim.layout import Layout, layouts
from ringshard.optim.roles import parameters
from ringshard.optim.ruled import Ruled

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
TYPES: dict[str, dict[str, Any]] = {
    "llama": SMALL | HEADS,
    "qwen3": SMALL | HEADS | {"tie_word_embeddings": True},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "phi3": SMALL | HEADS | {"pad_token_id": 0},
    "qwen3_moe": SMALL | HEADS | {"num_experts": 4, "moe_intermediate_size": 8},
    "gpt_neox": SMALL | {"num_attention_heads": 4},
}


def network(kind: str) -> PreTrainedModel:
    model = build_on_meta(Model(type=kind, config=TYPES[kind]), 61)
    return model.to_empty(device="cpu")


def ruled(config: Optimizer, model: nn.Module) -> Ruled:
    optimizer = build(config, model)
    assert isinstance(optimizer, Ruled)
    return optimizer


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "gpt_neox"])
def test_a_parameter_is_in_no_group_or_in_two_or_an_embedding_gets_muon(kind: str) -> None:
    model = network(kind)
    optimizer = ruled(Muon(), model)
    names = [slot.name for slots in optimizer.slots for slot in slots]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    muon = {
        slot.name
        for rule, slots in zip(optimizer.rules, optimizer.slots, strict=True)
        for slot in slots
        if rule.name == "muon"
    }
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    for name, parameter in model.named_parameters():
        hidden = parameter.dim() >= 2 and parameter is not embedding and parameter is not head
        assert (name in muon) == (hidden and "wpe" not in name), name


def test_a_rule_that_matches_nothing_is_accepted() -> None:
    model = network("llama")
    with pytest.raises(ConfigError, match=r"roles.other=q_prok matches no parameter: names are"):
        build(Muon(roles={"other": "q_prok"}), model)
    with pytest.raises(ConfigError, match=r"splits.q_prok matches no matrix"):
        build(Muon(splits={"q_prok": [16, 16]}), model)


def test_a_role_is_given_that_the_shape_cannot_have() -> None:
    model = network("llama")
    with pytest.raises(ConfigError, match=r"norm.* has 1 dimensions instead of 2"):
        build(Muon(roles={"matrix": "norm"}), model)
    for name, role in (("lm_head", "head"), ("embed_tokens", "embedding")):
        with pytest.raises(ConfigError, match=f"the {role} is no hidden matrix"):
            build(Muon(roles={"matrix": name}), model)


def test_an_override_has_no_effect() -> None:
    model = network("llama")
    optimizer = ruled(Muon(roles={"other": r"q_proj|layers\.1"}), model)
    for rule, slots in zip(optimizer.rules, optimizer.slots, strict=True):
        for slot in slots:
            overridden = "q_proj" in slot.name or "layers.1" in slot.name
            assert rule.name == "adamw" or not overridden
    adamw = ruled(AdamW(roles={"vector": "down_proj"}), model)
    undecayed = adamw.slots[1]
    assert sum("down_proj" in slot.name for slot in undecayed) == 2
    assert adamw.param_groups[1]["weight_decay"] == 0


def test_the_table_leaves_someone_out() -> None:
    model = network("gpt2")
    config = Muon()
    lines = who_gets_what(build(config, model), model, config)
    assert lines[0].split() == ["rule", "role", "parameters", "shape", "number"]
    assert sum(int(line.split()[-1]) for line in lines[1:]) == len(list(model.named_parameters()))
    (row,) = [line for line in lines if "attn.c_attn.weight" in line]
    assert row.split() == [
        "muon",
        "matrix",
        "transformer.h.*.attn.c_attn.weight",
        "32",
        "×",
        "96",
        "2",
    ]


def test_gpt2s_queries_keys_and_values_are_orthogonalized_together() -> None:
    """Stored (in, out), the three one after another in the outputs."""
    model = network("gpt2")
    found = layouts([p for p in parameters(model) if p.role == "matrix"])
    layout = found["transformer.h.0.attn.c_attn.weight"]
    assert layout == Layout((32, 96), transposed=True, sizes=(32, 32, 32))
    weight = torch.randn(32, 96)
    parts = layout.blocks(weight)
    for part, own in zip(parts, weight.T.split(32), strict=True):
        assert torch.equal(part, own)
    rows = [layout.blocks(weight[start : start + 10], start) for start in range(0, 32, 10)]
    for k, part in enumerate(parts):
        assert torch.equal(torch.cat([cut[k] for cut in rows], 1), part)
    assert found["transformer.h.0.mlp.c_fc.weight"].matrices == [(128, 32)]


def test_other_fused_matrices_are_not_taken_apart() -> None:
    phi = network("phi3")
    found = layouts([p for p in parameters(phi) if p.role == "matrix"])
    assert found["model.layers.0.self_attn.qkv_proj.weight"].sizes == (32, 16, 16)
    assert found["model.layers.0.mlp.gate_up_proj.weight"].sizes == (64, 64)
    assert found["model.layers.0.mlp.down_proj.weight"].sizes == ()
    moe = network("qwen3_moe")
    found = layouts([p for p in parameters(moe) if p.role == "experts"])
    assert found["model.layers.0.mlp.experts.gate_up_proj"].matrices == [(8, 32)] * 8
    assert found["model.layers.0.mlp.experts.down_proj"].matrices == [(32, 8)] * 4


def test_a_fused_matrix_of_unknown_order_is_taken_as_one() -> None:
    model = network("gpt_neox")
    with pytest.raises(ConfigError, match=r"query_key_value.weight fuses queries.*give opt"):
        build(Muon(), model)
    build(Muon(splits={"query_key_value": [8] * 12}), model)
    build(Muon(roles={"other": "query_key_value"}), model)
    with pytest.raises(ConfigError, match="add up to 64, and it has 96 outputs"):
        build(Muon(splits={"query_key_value": [64]}), model)


def test_a_fused_matrix_is_not_updated_as_its_parts_are() -> None:
    """And the same matrix stored (in, out)."""
    generator = torch.Generator().manual_seed(0)
    weight, gradient = (torch.randn(24, 10, generator=generator) for _ in range(2))

    class Conv1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(weight.T.clone())

    fused, turned = nn.Module(), nn.Module()
    fused.fused = nn.Linear(10, 24, bias=False)
    fused.fused.weight = nn.Parameter(weight.clone())
    turned.fused = Conv1D()
    apart = nn.ParameterList([part.clone() for part in weight.split([8, 4, 12])])
    fused.fused.weight.grad, turned.fused.weight.grad = gradient.clone(), gradient.T.clone()
    for parameter, part in zip(apart, gradient.split([8, 4, 12]), strict=True):
        parameter.grad = part.clone()
    config = {"fused": [8, 4, 12]}
    for model, splits in ((fused, config), (turned, config), (apart, {})):
        build(Muon(splits=splits), model).step()
    together = torch.cat([parameter.detach() for parameter in apart])
    torch.testing.assert_close(fused.fused.weight.detach(), together)
    torch.testing.assert_close(turned.fused.weight.detach().T, together)


def test_experts_in_parts_are_not_the_experts_whole() -> None:
    layout = Layout((6, 16, 8), sizes=(8, 8))
    weight = Matrices().experts.detach()
    whole = layout.blocks(weight)
    for start in range(0, 6, 4):
        for block, cut in zip(whole, layout.blocks(weight[start : start + 4], start), strict=True):
            assert not cut.numel() or torch.equal(cut, block)
    counts = [sum(bool(b.numel()) for b in layout.blocks(weight[s : s + 4], s)) for s in (0, 4)]
    assert counts == [8, 4]


@pytest.mark.parametrize(
    ("kind", "config", "sentence"),
    [
        ("llama", Muon(roles={"other": "q_prok"}), "matches no parameter"),
        ("gpt_neox", Muon(), "in an order that is not known"),
        ("gpt_neox", AdamW(), ""),
        ("gpt2", Muon(splits={"c_attn": [90]}), "add up to 90, and it has 96"),
    ],
)
def test_what_the_ranks_refuse_passes_the_submit_side(
    kind: str, config: Optimizer, sentence: str
) -> None:
    weights = describe_built(network(kind)).weights
    if not sentence:
        return check_weights(config, weights)
    with pytest.raises(ConfigError, match=sentence):
        check_weights(config, weights)
    return None
