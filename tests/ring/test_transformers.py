"""Ring attention inside models: recomputation, compilation, leaks, and what it refuses to do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from ring.models import DOCUMENTS, batch, build, on_ranks, tiny, world_ring
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

from ringshard.config.schema.parallelism import Attention
from ringshard.parallel.parallelize import recompute_blocks, sum_gradients
from ringshard.parallel.ring.attention import RingState, ring_forward
from ringshard.parallel.ring.documents import bounds_of_lengths
from ringshard.parallel.ring.group import Ring, alone
from ringshard.parallel.ring.layout import zigzag
from ringshard.parallel.ring.plan import build_plan
from ringshard.parallel.ring.recompute import keep_attention
from ringshard.parallel.ring.share import Cutting, Share, share
from ringshard.parallel.ring.transformers import NAME, attention_forward, register, watched

BOUNDS = [bounds_of_lengths(lengths) for lengths in DOCUMENTS]
Change = Callable[[nn.Module], None]


def prepared(change: Change | None = None, kind: str = "llama") -> tuple[Any, Ring, Share]:
    """A model that was changed, the ring, and this rank's share of the batch."""
    register()
    model, ring = build(tiny(kind), NAME), world_ring()
    if change is not None:
        change(model)
    return model, ring, share(ring, BOUNDS, batch(), Cutting())


def logits_of(model: Any, part: Share) -> Tensor:
    inputs = {name: part.tensors[name] for name in ("input_ids", "position_ids")}
    return model(**inputs, ring=part.state).logits


def _backward(change: Change | None) -> tuple[list[Tensor], int]:
    """Gradients of all parameters, and how often attention went forward."""
    model, ring, part = prepared(change)
    ring.calls = 0
    loss = logits_of(model, part).square().mean()
    del part  # recomputation happens when the batch is gone
    loss.backward()
    return [p.grad for p in model.parameters()], ring.calls


def recompute(model: Any) -> None:
    """Whole blocks, as transformers does it."""
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": False})


def keep(model: Any) -> None:
    """Blocks without their attention."""
    for layer in model.model.layers:
        layer.forward = _kept(layer.forward)


def _kept(forward: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, context_fn=keep_attention, **kwargs)

    return call


def compile_blocks(model: Any) -> None:
    """All but the code generator, which takes a minute on CPU."""
    for layer in model.model.layers:
        layer.compile(backend="aot_eager", fullgraph=True)


def compile_kept(model: Any) -> None:
    """As a job has it."""
    recompute_blocks(model.model.layers, Attention.ring)
    compile_blocks(model)


def compile_to_code(model: Any) -> None:
    """As on a GPU."""
    for layer in model.model.layers:
        layer.compile(fullgraph=True)


CHANGES = [
    pytest.param(recompute, 4, id="recomputed"),
    pytest.param(keep, 2, id="attention-kept"),
    pytest.param(compile_blocks, 2, id="compiled"),
    pytest.param(compile_kept, 2, id="compiled-attention-kept"),
    pytest.param(compile_to_code, 2, id="compiled-to-code", marks=pytest.mark.compile),
]


@pytest.mark.parametrize(("change", "calls"), CHANGES)
def test_gradients_stay_and_attention_is_called(change: Change, calls: int) -> None:
    """2 layers: recomputation goes round the ring again, unless the output is kept."""
    plain, changed = run_ranks(2, _backward, None), run_ranks(2, _backward, change)
    for (wanted, before), (found, after) in zip(plain, changed, strict=True):
        assert (before, after) == (2, calls)
        exact = change in (recompute, keep)
        for one, other in zip(wanted, found, strict=True):
            torch.testing.assert_close(
                other, one, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-7
            )


def _fsdp(sharded: bool) -> list[Tensor]:
    """Gradients summed over the ranks, by FSDP2 or by hand."""
    model, _, part = prepared()
    if sharded:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        sum_gradients(model)
    logits_of(model, part).square().mean().backward()
    gradients = [p.grad for p in model.parameters()]
    if sharded:
        return [gradient.full_tensor() for gradient in gradients]
    for gradient in gradients:
        dist.all_reduce(gradient)
    return gradients


def test_parameters_sharded_over_the_ring_have_the_same_gradients() -> None:
    plain, sharded = (run_ranks(2, _fsdp, way)[0] for way in (False, True))
    torch.testing.assert_close(sharded, plain, rtol=1e-5, atol=1e-8)


def _opcheck() -> dict[str, str]:
    plan = build_plan(zigzag(8, 1), [bounds_of_lengths([3, 5])] * 2, 0).to_tensor()
    q = torch.randn(2, 8, 4, 16).transpose(1, 2).requires_grad_()
    k = torch.randn(2, 8, 2, 16).transpose(1, 2).requires_grad_()
    args = (q, k, k.detach().clone().requires_grad_(), plan, 0.25, alone().name, "ring", "auto")
    return torch.library.opcheck(ring_forward, args)


def test_the_operator_is_what_it_says() -> None:
    """Schema, fake kernel with its strides, autograd, and all of it traced."""
    assert set(run_ranks(1, _opcheck)[0].values()) == {"SUCCESS"}


def _changed_logits(row: int, token: int) -> tuple[Tensor, Tensor, Any]:
    model, ring, part = prepared()
    tensors = batch()
    tensors["input_ids"][0][row, token] += 1
    changed = share(ring, BOUNDS, tensors, Cutting())
    with torch.no_grad():
        return logits_of(model, part), logits_of(model, changed), part.layout


@pytest.mark.parametrize(
    ("row", "token", "end"), [(0, 4, 20), (0, 20, 21), (0, 30, 45), (1, 7, 45)]
)
def test_a_token_changes_its_document_from_itself_on_and_nothing_else(
    row: int, token: int, end: int
) -> None:
    """Bitwise, through the whole model."""
    before, after, layouts = zip(*run_ranks(2, _changed_logits, row, token), strict=True)
    same = (layouts[0].unshard(before) == layouts[0].unshard(after)).all(-1)  # (B, S)
    assert same[1 - row].all()
    assert same[row, :token].all() and same[row, end:].all()
    assert not same[row, token:end].any()


def _watch(layers: int, change: Change | None, kind: str) -> str:
    model, ring, part = prepared(change, kind)
    try:
        with watched(ring, layers):
            logits_of(model, part)
    except RuntimeError as error:
        return str(error)
    return ""


def go_local(model: Any) -> None:
    """One layer computes attention itself."""
    attention = model.model.layers[1].self_attn
    attention.config = type(attention.config)(**attention.config.to_dict())
    attention.config._attn_implementation = "eager"


def test_a_layer_that_never_calls_is_named_at_the_first_step() -> None:
    assert run_ranks(1, _watch, 2, None, "llama") == [""]
    assert run_ranks(1, _watch, 2, compile_blocks, "llama") == [""]
    (told,) = run_ranks(1, _watch, 2, go_local, "llama")
    assert "called 1 times in a forward pass of 2 layers (layers without it: [1])" in told
    (told,) = run_ranks(1, _watch, 2, None, "nemotron")
    assert "was not given ring=" in told


@pytest.mark.parametrize(
    ("keywords", "told"),
    [
        ({"attention_mask": torch.ones(1, 8)}, "attention mask"),
        ({"dropout": 0.1}, "drops attention weights"),
        ({"is_causal": False}, "causal"),
        ({"sliding_window": 4}, "sliding_window"),
        ({"softcap": 50.0}, "softcap"),
        ({"s_aux": torch.zeros(4)}, "s_aux"),
        ({"key": torch.zeros(1, 4, 9, 16)}, "cache"),
        ({"ring": None}, "was not given ring="),
    ],
)
def test_what_would_change_the_result_is_refused(keywords: dict[str, Any], told: str) -> None:
    plan = build_plan(zigzag(8, 1), [bounds_of_lengths([8])], 0).to_tensor()
    tensor = torch.zeros(1, 4, 8, 16)
    given = {"query": tensor, "key": tensor, "value": tensor, "attention_mask": None,
             "ring": RingState(plan, alone().name, "ring")}  # fmt: skip
    attention_forward(nn.Module(), **given)
    with pytest.raises(RuntimeError, match=told):
        attention_forward(nn.Module(), **(given | keywords))


def _other_rows() -> str:
    tensors = batch()
    if dist.get_rank():
        tensors["input_ids"][0][0, 0] += 1
    try:
        share(world_ring(), BOUNDS, tensors, Cutting(check=True))
    except RuntimeError as error:
        return str(error)
    return ""


def test_ranks_that_read_other_rows_are_told() -> None:
    assert all("not its tokens_hash" in told for told in run_ranks(2, _other_rows))


@pytest.mark.parametrize("layout", ["contiguous", "balanced"])
def test_a_model_under_another_layout_and_transport(layout: str) -> None:
    config = tiny("llama")
    one, other = (on_ranks(2, config, Cutting(name)) for name in ("zigzag", layout))
    torch.testing.assert_close(one["logits"], other["logits"], atol=1e-6, rtol=0)
