"""The model is the library's: same names, same logits, same loss; only storage and loss are
ours."""

from pathlib import Path

import pytest
import torch
from parity.curves import MODELS, VOCAB, Topology, full_parameters, job
from ranks import run_ranks
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from ringshard import registry
from ringshard.config.schema.model import Model
from ringshard.config.schema.parallelism import Attention, Parallelism
from ringshard.errors import ConfigError
from ringshard.model.architecture import architecture
from ringshard.model.build import build_on_meta
from ringshard.parallel import mesh as meshes
from ringshard.train.network import check_model, model_on
from ringshard.train.pieces import Cutter

IDS = torch.arange(4 * 17).view(4, 17) * 7 % VOCAB


def _ours(name: str) -> tuple[dict[str, torch.Tensor], float, torch.Tensor]:
    mesh = meshes.build(Parallelism(), torch.device("cpu"))
    model = model_on(mesh, job(Topology(), name), VOCAB)
    model.eval()
    context = Cutter.of(job(Topology(), name), mesh.ring).alone(IDS[:, :-1])
    loss, *_ = model(IDS[:, :-1], targets=IDS[:, 1:], **context)
    return full_parameters(model), loss.item() / (4 * 16), model(IDS[:, :-1], **context).detach()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("world", [1, 2])
def test_garbage_in_buffers_or_another_forward_than_the_librarys(name: str, world: int) -> None:
    parameters, loss, logits = run_ranks(world, _ours, name)[0]
    theirs = AutoModelForCausalLM.from_config(architecture(MODELS[name], VOCAB))
    theirs.load_state_dict(parameters, strict=False)
    theirs.tie_weights()
    theirs.eval()
    expected = theirs(IDS[:, :-1], labels=IDS[:, :-1], shift_labels=IDS[:, 1:].contiguous())
    torch.testing.assert_close(logits, expected.logits, rtol=1e-4, atol=1e-5)
    assert loss == pytest.approx(expected.loss.item(), rel=1e-5)
    assert set(parameters) == set(dict(theirs.named_parameters()))


def _initial(world: int, seed: int) -> dict[str, torch.Tensor]:
    return run_ranks(world, _draw, seed)[0]


def _draw(seed: int) -> dict[str, torch.Tensor]:
    mesh = meshes.build(Parallelism(), torch.device("cpu"))
    config = job(Topology(), "llama")
    config.train.seed = seed
    return full_parameters(model_on(mesh, config, VOCAB))


def test_initial_parameters_depend_on_the_number_of_ranks() -> None:
    one = _initial(1, 5)
    for world in (2, 3, 4):
        assert all(torch.equal(one[n], p) for n, p in _initial(world, 5).items())


def test_initial_parameters_do_not_depend_on_the_seed_or_the_name() -> None:
    one, other = _initial(1, 5), _initial(1, 6)
    matrices = {name: p for name, p in one.items() if p.dim() == 2}
    assert not any(torch.equal(other[name], p) for name, p in matrices.items())
    first, second = (one[f"model.layers.{i}.self_attn.q_proj.weight"] for i in (0, 1))
    assert not torch.equal(first, second)


def test_the_librarys_own_scale_of_a_weight_is_lost() -> None:
    parameters = run_ranks(1, _ours, "gpt2")[0][0]
    scaled, plain = (
        parameters[f"transformer.h.0.attn.{name}.weight"].std() for name in ("c_proj", "c_attn")
    )
    assert scaled / plain == pytest.approx(0.5, rel=0.1)  # 1 / sqrt(2 · layers), two layers


def _pretrained(directory: str) -> dict[str, torch.Tensor]:
    mesh = meshes.build(Parallelism(), torch.device("cpu"))
    config = job(Topology(), "llama")
    config.model = Model(pretrained=directory)
    return full_parameters(model_on(mesh, config, VOCAB))


@pytest.mark.parametrize("name", ["llama", "qwen3_tied"])
@pytest.mark.parametrize("shard_size", ["1GB", "20KB"], ids=["one-file", "index"])
def test_pretrained_weights_arrive_changed(name: str, shard_size: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = AutoModelForCausalLM.from_config(architecture(MODELS[name], VOCAB))
    theirs.save_pretrained(tmp_path, max_shard_size=shard_size)
    expected = {name: p.detach() for name, p in theirs.named_parameters()}
    for world in (1, 2):
        got = run_ranks(world, _pretrained, str(tmp_path))[0]
        assert all(torch.equal(got[name], p) for name, p in expected.items())


def test_a_folder_without_weights_is_taken(tmp_path: Path) -> None:
    architecture(MODELS["llama"], VOCAB).save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match=r"neither model.safetensors nor"):
        run_ranks(1, _pretrained, str(tmp_path))


def test_a_misspelt_field_trains_another_model() -> None:
    wrong = Model(type="llama", config={"num_hiden_layers": 2})
    with pytest.raises(ConfigError, match=r"num_hiden_layers.*did you mean num_hidden_layers"):
        build_on_meta(wrong, VOCAB)


def test_an_unknown_type_gets_a_traceback() -> None:
    with pytest.raises(ConfigError, match=r"model.type=lama.*did you mean.*llama"):
        build_on_meta(Model(type="lama"), VOCAB)


def test_a_vocabulary_smaller_than_the_datas_fails_at_a_later_step() -> None:
    small = Model(type="llama", config={"vocab_size": 60})
    with pytest.raises(ConfigError, match=r"vocab_size=60.*61"):
        build_on_meta(small, VOCAB)


def _checked(model: Model, attention: Attention = Attention.ring) -> None:
    mesh = meshes.build(Parallelism(), torch.device("cpu"))
    config = job(Topology(), "llama")
    config.model = model
    config.parallelism.attention = attention
    check_model(model_on(mesh, config, VOCAB), mesh, Cutter.of(config, mesh.ring))


SMALL = MODELS["llama"].config
GEMMA = {**SMALL, "head_dim": 8, "sliding_window": 64}


@pytest.mark.parametrize(
    "model",
    [
        Model(type="granite", config={**SMALL, "logits_scaling": 8.0}),
        Model(type="gemma3_text", config={**GEMMA, "final_logit_softcapping": 30.0}),
        Model(type="bert", config={**dict(list(SMALL.items())[:4]), "is_decoder": True}),
    ],
    ids=lambda model: model.type,
)
def test_a_model_that_changes_its_logits_trains_on_another_loss(model: Model) -> None:
    with pytest.raises(RuntimeError, match=r"does more for its logits than its output head"):
        run_ranks(1, _checked, model, Attention.sdpa)


def test_with_ring_attention_too_a_model_that_changes_its_logits_trains_on_another_loss() -> None:
    with pytest.raises(RuntimeError, match=r"does more for its logits than its output head"):
        run_ranks(2, _checked, Model(type="granite", config={**SMALL, "logits_scaling": 8.0}))


def test_a_model_that_computes_attention_itself_trains_on_each_ranks_own_tokens() -> None:
    bloom = Model(type="bloom", config={"hidden_size": 32, "n_layer": 2, "n_head": 4})
    with pytest.raises(RuntimeError, match=r"called 0 times in a forward pass of 2 layers"):
        run_ranks(1, _checked, bloom)


def test_a_model_that_sees_later_tokens_learns_to_copy() -> None:
    bidirectional = GEMMA | {"use_bidirectional_attention": True}
    with pytest.raises(RuntimeError, match=r"gemma3_text attends to later tokens"):
        run_ranks(1, _checked, Model(type="gemma3_text", config=bidirectional), Attention.sdpa)
    run_ranks(1, _checked, Model(type="gemma3_text", config=GEMMA), Attention.sdpa)


@pytest.mark.parametrize("kind", ["opt", "gpt_neox", "mixtral", "qwen3_moe", "phi3", "bloom"])
@pytest.mark.parametrize("world", [1, 2])
def test_a_type_of_the_library_is_not_trained(kind: str, world: int) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    own = {
        "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
        "bloom": {},
        "mixtral": {"intermediate_size": 64, "num_key_value_heads": 2, "num_local_experts": 4},
        "qwen3_moe": {"moe_intermediate_size": 32, "num_key_value_heads": 2, "num_experts": 4}
        | {"num_experts_per_tok": 2},
        "phi3": {"intermediate_size": 64, "num_key_value_heads": 2},
        "gpt_neox": {"intermediate_size": 64},
    }
    attention = Attention.sdpa if kind == "bloom" else Attention.ring
    run_ranks(world, _checked, Model(type=kind, config=sizes | own[kind]), attention)


def test_a_misspelt_field_beside_a_folder_is_ignored(tmp_path: Path) -> None:
    architecture(MODELS["llama"], VOCAB).save_pretrained(tmp_path)
    wrong = Model(path=str(tmp_path), config={"num_hiden_layers": 1})
    with pytest.raises(ConfigError, match=r"num_hiden_layers.*did you mean num_hidden_layers"):
        build_on_meta(wrong, VOCAB)


@pytest.mark.parametrize(
    "error, sentence",
    [
        (
            ZeroDivisionError("by nought"),
            r"model.type=mine failed with ZeroDivisionError: by nought",
        ),
        (RuntimeError("[gloo] Connection closed by peer"), None),
        (torch.OutOfMemoryError("out"), None),
    ],
)
def test_a_wrong_model_of_the_users_is_a_traceback_or_blamed_for_the_machine(
    error: Exception, sentence: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: object) -> None:
        raise error

    def mine(config: dict[str, object], vocab_size: int) -> LlamaForCausalLM:
        model = LlamaForCausalLM(LlamaConfig(vocab_size=vocab_size, **config))
        monkeypatch.setattr(model.model, "forward", broken)
        return model

    monkeypatch.setitem(registry._REGISTERED, ("model", "mine"), mine)
    model = build_on_meta(Model(type="mine", config=dict(MODELS["llama"].config)), VOCAB)
    with pytest.raises(ConfigError if sentence else type(error), match=sentence) as caught:
        model(IDS.to("meta"))
    assert not sentence or "(test_build.py:" in str(caught.value)
