"""Descriptions: counted by the model room, read by the config room without torch."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringshard.config.description import describe
from ringshard.config.schema.job import User
from ringshard.config.schema.model import Model
from ringshard.errors import ConfigError
from ringshard.model import describe as counting

LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ringshard" / "models"


def counted(kind: str, **config: Any) -> Any:
    return counting.describe(Model(type=kind, config=config), 97)


def test_a_llama() -> None:
    found = counted("llama", **LLAMA)
    block = 32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 56
    assert (found.layers, found.hidden, found.heads, found.kv_heads, found.head_dim) == (
        2,
        32,
        4,
        2,
        8,
    )
    assert found.matmul_parameters == 2 * block + 97 * 32
    assert found.parameters_without_embeddings == 2 * (block + 64) + 32 + 97 * 32
    assert found.parameters == found.parameters_without_embeddings + 97 * 32
    assert (found.max_positions, found.learned_positions, found.tied) == (2048, False, False)
    assert not found.dropouts


def test_a_gpt2_has_a_tied_head_learned_positions_and_three_dropouts() -> None:
    found = counted("gpt2", n_embd=32, n_layer=2, n_head=4, n_positions=64, attn_pdrop=0.0)
    assert (found.tied, found.max_positions, found.learned_positions) == (True, 64, True)
    assert found.parameters == found.parameters_without_embeddings + (97 + 64) * 32
    assert found.matmul_parameters == 2 * 12 * 32 * 32 + 97 * 32
    assert found.dropouts == {"resid_pdrop": 0.1, "embd_pdrop": 0.1}


def test_only_the_active_experts_of_a_mixture_are_multiplied_with() -> None:
    sizes = LLAMA | {"moe_intermediate_size": 24, "num_experts": 8}
    one, two = (counted("qwen3_moe", **sizes, num_experts_per_tok=k) for k in (1, 2))
    assert one.parameters == two.parameters
    assert two.matmul_parameters - one.matmul_parameters == 2 * 3 * 32 * 24


def test_it_comes_from_the_cache_until_its_directory_changes(
    tmp_path: Path, cache: Path, capfd: Any
) -> None:
    fields = LLAMA | {"model_type": "llama", "vocab_size": 120}
    for layers in (1, 2):
        (tmp_path / "config.json").write_text(json.dumps(fields | {"num_hidden_layers": layers}))
        for said in (True, False):
            found = describe(Model(path=str(tmp_path)), 97, User(path="."))
            assert (found.layers, found.vocab_size) == (layers, 120)
            assert said == ("few seconds" in capfd.readouterr().err)
    assert [path.suffix for path in cache.iterdir()] == [".json"] * 2


@pytest.mark.parametrize(
    ("model", "part"),
    [
        (Model(type="lama"), "did you mean llama"),
        (Model(type="llama", config={"hiden_size": 32}), "did you mean hidden_size"),
        (Model(path="/nowhere"), "/nowhere"),
        (Model(type="llama", config=LLAMA | {"vocab_size": 50}), "vocab_size=50"),
    ],
)
def test_a_mistake_is_one_sentence(model: Model, part: str) -> None:
    with pytest.raises(ConfigError, match=part) as error:
        counting.describe(model, 97)
    assert "\n" not in str(error.value)


NO_MODEL = {
    "num_key_value_heads=3": "num_key_value_heads=3 must divide num_attention_heads=4",
    "hidden_size=0": "hidden_size=0 must be at least 1",
    "hidden_size=34": "hidden_size=34",
    "num_hidden_layers=0": "num_hidden_layers=0 must be at least 1",
    "num_hidden_layers=-3": "num_hidden_layers=-3 must be at least 1",
    "intermediate_size=0": "intermediate_size=0 must be at least 1",
    "max_position_embeddings=-1": "max_position_embeddings=-1 must be at least 1",
    "attention_dropout=2": "attention_dropout=2 must lie between 0 and 1",
    "hidden_act=foo": "hidden_act=foo does not fit model.type=llama",
    "rms_norm_eps=abc": "rms_norm_eps=abc does not fit model.type=llama",
}


@pytest.mark.parametrize("typed", NO_MODEL)
def test_a_shape_that_no_model_has_is_found_in_the_ranks(typed: str) -> None:
    name, value = typed.split("=")
    given = LLAMA | {name: int(value) if value.lstrip("-").isdigit() else value}
    with pytest.raises(ConfigError) as error:
        counting.describe(Model(type="llama", config=given), 97)
    said = str(error.value)
    assert said.startswith(f"model.config.{NO_MODEL[typed]}") and "\n" not in said


@pytest.mark.parametrize(
    "kind, config, sentence",
    [
        ("opt", {"layerdrop": 0.1}, "layerdrop=0.1 must be 0"),
        ("mixtral", {"output_router_logits": True}, "output_router_logits=True would have no"),
    ],
)
def test_ranks_that_drop_other_layers_hang_or_a_term_of_the_loss_is_left_out(
    kind: str, config: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=f"^model.config.{sentence}"):
        counting.describe(Model(type=kind, config=config), 97)


@pytest.mark.parametrize("config", [{"n_head": 7}, {"attn_pdrop": 2}, {"n_embd": 0}])
def test_a_gpt2_that_the_library_refuses_is_a_traceback(config: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"model\.config"):
        counting.describe(Model(type="gpt2", config={"n_embd": 32, "n_layer": 1} | config), 97)


def test_a_mistake_comes_through_and_is_not_cached(cache: Path) -> None:
    with pytest.raises(ConfigError, match=r"^model\.type=lama .* did you mean llama[^\n]*$"):
        describe(Model(type="lama"), 97, User(path="."))
    assert not cache.exists()


def test_a_model_of_a_user_module_is_described(tmp_path: Path) -> None:
    (tmp_path / "own_model.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "from ringshard.registry import register\n"
        "@register('model', 'own')\n"
        "def own(config, vocab_size):\n"
        f"    return LlamaForCausalLM(LlamaConfig(vocab_size=vocab_size, **{LLAMA}))\n"
    )
    found = describe(Model(type="own"), 97, User(modules=["own_model"], path=str(tmp_path)))
    assert found.parameters == counted("llama", **LLAMA).parameters


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("LlamaConfig(hiden=3).nothing", "'LlamaConfig' object has no attribute 'nothing'"),
        ("Bare(BareConfig())", "'BareConfig' object has no attribute 'num_hidden_layers'"),
        ("torch.nn.Linear(3, 3)", "made a Linear: return a PreTrainedModel"),
        ("LlamaForCausalLM(LlamaConfig(num_hidden_layers=0))", "num_hidden_layers=0 must be"),
    ],
)
def test_a_wrong_model_of_the_users_is_told_by_two_tracebacks(
    body: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "wrong_model.py").write_text(
        "import torch\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "from transformers import PretrainedConfig, PreTrainedModel\n"
        "from ringshard.registry import register\n"
        "class BareConfig(PretrainedConfig):\n    model_type = 'bare'\n"
        "class Bare(PreTrainedModel):\n"
        "    config_class = BareConfig\n"
        "    def __init__(self, config):\n"
        "        super().__init__(config)\n"
        "        self.head = torch.nn.Linear(3, 3)\n"
        "    def get_output_embeddings(self):\n        return self.head\n"
        "@register('model', 'wrong')\n"
        f"def wrong(config, vocab_size):\n    return {body}\n"
    )
    with pytest.raises(ConfigError) as error:
        describe(Model(type="wrong"), 97, User(modules=["wrong_model"], path=str(tmp_path)))
    assert said in str(error.value) and "\n" not in str(error.value)
    assert "nothing" not in said or "(wrong_model.py:16, wrong)" in str(error.value)


def test_reading_a_description_imports_no_torch() -> None:
    imported = "{'torch', 'transformers'} & set(sys.modules)"
    code = f"import ringshard.config.description, sys; assert not {imported}"
    subprocess.run([sys.executable, "-c", code], check=True)
