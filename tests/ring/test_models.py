"""Types of models: exact over a ring, or refused with what would work."""

from dataclasses import replace
from pathlib import Path

import pytest
from ring.models import TYPES, build, differences, on_one, on_ranks, tiny
from ring.page import page, why_not

from ringshard.config.refusal import refusals
from ringshard.model.describe import describe_built
from ringshard.parallel.ring.probe import probe

CHECKOUT = Path(__file__).resolve().parents[2]

REFUSED = {
    "bloom": "compute it themselves",
    "cohere2": "sliding_window=null",
    "exaone4": "sliding_window=null",
    "falcon": "failed",
    "gemma2": "caps its scores",
    "gemma3_text": "sliding_window=null",
    "gpt_oss": "sinks",
    "lfm2": "conv",
    "llama4_text": "chunked_attention",
    "nemotron": "keeps keywords",
    "olmo3": "sliding_window=null",
    "qwen3_next": "linear_attention",
    "stablelm": "keeps keywords",
}

ROPES = {
    "linear": {"factor": 2.0},
    "yarn": {"factor": 2.0},
    "llama3": {"factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 16},
    "dynamic": {"factor": 2.0},
    "longrope": {"factor": 2.0, "short_factor": [1.0, 1.1, 1.2, 1.3],
                 "long_factor": [2.0, 2.1, 2.2, 2.3], "original_max_position_embeddings": 16},
}  # fmt: skip


def test_the_page_is_up_to_date() -> None:
    text = (CHECKOUT / "docs" / "models.md").read_text(encoding="utf-8")
    assert text == page(), "PYTHONPATH=platform:tests python -m ring.page > docs/models.md"


@pytest.mark.rotated(3)
@pytest.mark.parametrize("kind", TYPES)
def test_a_type_is_exact_or_refused(kind: str) -> None:
    reasons = why_not(kind)
    if kind in REFUSED:
        assert REFUSED[kind] in "; ".join(reasons)
        return
    assert not reasons
    config = tiny(kind)
    found = differences(on_ranks(2, config), on_one(config))
    assert max(found.values()) < 1e-6, found


@pytest.mark.parametrize("world", [1, 4])
@pytest.mark.parametrize("kind", ["llama", "qwen3_moe", "gpt2"])
def test_other_numbers_of_ranks(kind: str, world: int) -> None:
    config = tiny(kind)
    found = differences(on_ranks(world, config), on_one(config))
    assert max(found.values()) < 1e-6, found


@pytest.mark.parametrize("kind", ["cohere2", "gemma3_text", "olmo3"])
def test_the_advice_on_windows_works(kind: str) -> None:
    config = tiny(kind, sliding_window=None)
    model = build(config, "sdpa", "meta")
    assert not refusals(describe_built(model), probe(model))
    assert max(differences(on_ranks(2, config), on_one(config)).values()) < 1e-6


@pytest.mark.parametrize("kind", ROPES)
def test_every_kind_of_rotary_embedding_is_exact(kind: str) -> None:
    """With more positions than the model was made for."""
    rope = {"rope_type": kind, "rope_theta": 1e4, **ROPES[kind]}
    config = tiny("llama", rope_parameters=rope, max_position_embeddings=16)
    found = differences(on_ranks(2, config), on_one(config))
    assert max(found.values()) < 1e-6, found


def test_attention_dropout_is_refused_with_its_field() -> None:
    model = build(tiny("llama", attention_dropout=0.1), "sdpa", "meta")
    description = describe_built(model)
    (reason,) = refusals(description, probe(model))
    assert "model.config.attention_dropout=0 (now 0.1)" in reason
    assert not refusals(description, probe(model), trains=False)
    assert not refusals(replace(description, dropouts={"resid_pdrop": 0.1}), probe(model))


def test_attention_that_is_not_causal_or_has_a_mask_is_refused() -> None:
    model = build(tiny("llama"), "sdpa", "meta")
    description, traits = describe_built(model), probe(model)
    for changed in (
        replace(traits, causal=False),
        replace(traits, masks=True),
        replace(traits, calls=[0, 0]),
        replace(traits, rope=["dynamic"]),
    ):
        assert len(refusals(description, changed)) == 1
