"""Positions in three dimensions (time, height, width), as models of pictures have them."""

import pytest
import torch
from ranks import run_ranks
from ring.models import DOCUMENTS, VOCAB, world_ring
from ring.whole import mask_of
from torch import Tensor
from transformers import Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel

from ringshard.parallel.ring.documents import bounds_of_lengths
from ringshard.parallel.ring.share import Cutting, Share, share
from ringshard.parallel.ring.transformers import attend_by_ring

LENGTH = 45
ROWS = [bounds_of_lengths(lengths) for lengths in DOCUMENTS]


def _batch() -> dict[str, tuple[Tensor, int]]:
    """Tokens and the gradients of their outputs (B, S), positions (3, B, S), each with its
    padding."""
    g = torch.Generator().manual_seed(0)
    shape = (len(ROWS), LENGTH)
    return {
        "input_ids": (torch.randint(VOCAB, shape, generator=g), 0),
        "weights": (torch.randint(1, 9, shape, generator=g), 0),
        "position_ids": (torch.randint(LENGTH, (3, *shape), generator=g), 0),
    }


def _model() -> Qwen2_5_VLTextModel:
    torch.manual_seed(0)
    config = Qwen2_5_VLTextConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=None,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
    )
    return Qwen2_5_VLTextModel(config).eval()


def _pass(model: Qwen2_5_VLTextModel, tensors: dict[str, Tensor], **way: object) -> list[Tensor]:
    """The outputs (B, S, D), and gradients of all parameters."""
    inputs = {name: tensors[name] for name in ("input_ids", "position_ids")}
    out = model(**inputs, use_cache=False, **way).last_hidden_state
    loss = (out.square() * tensors["weights"][..., None]).mean() * out.shape[1]
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return [out.detach(), *gradients]


def _masked() -> list[Tensor]:
    tensors = {name: tensor for name, (tensor, _) in _batch().items()}
    return _pass(_model(), tensors, attention_mask={"full_attention": mask_of(ROWS)})


def _cut() -> tuple[Share, list[Tensor]]:
    model = _model()
    attend_by_ring(model, LENGTH)
    part = share(world_ring(), ROWS, _batch(), Cutting(check=True))
    return part, _pass(model, part.tensors, ring=part.state)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_positions_in_three_dimensions_are_cut_wrongly(world: int) -> None:
    shares, found = zip(*run_ranks(world, _cut), strict=True)
    layout = shares[0].layout
    positions = layout.unshard([part.tensors["position_ids"] for part in shares], dim=2)
    assert torch.equal(positions[..., :LENGTH], _batch()["position_ids"][0])
    assert not positions[..., LENGTH:].any()

    out, *gradients = run_ranks(1, _masked)[0]
    outs, *parts = zip(*found, strict=True)
    torch.testing.assert_close(layout.unshard(outs)[:, :LENGTH], out, atol=2e-6, rtol=0)
    for part, whole in zip(parts, gradients, strict=True):
        torch.testing.assert_close(sum(part), whole, atol=1e-5, rtol=1e-5)
