"""The model of a job on its mesh, with storage and first weights; and what it must not do."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from ringshard.config.schema.job import Job
from ringshard.config.schema.parallelism import Attention
from ringshard.errors import ConfigError
from ringshard.model.build import build_on_meta, library_logits
from ringshard.model.init import draw_parameters, record_rules, restore_buffers
from ringshard.model.pretrained import load_pretrained
from ringshard.parallel.mesh import Mesh
from ringshard.parallel.parallelize import TORCH_DTYPES, parallelize, reshard
from ringshard.parallel.ring.group import alone
from ringshard.parallel.ring.transformers import attend_by_ring, watched
from ringshard.train.pieces import Cutter


def model_on(mesh: Mesh, job: Job, vocab_size: int, initialize: bool = True) -> PreTrainedModel:
    """The model, parallel, with its initial or pretrained weights.

    initialize=False leaves garbage in them, for a checkpoint to overwrite.
    """
    model = build_on_meta(job.model, vocab_size)
    if job.parallelism.attention is Attention.ring:
        attend_by_ring(model, job.data.seq_len)
    shorten(model, TORCH_DTYPES[job.precision.weights])
    draws = initialize and not job.model.pretrained
    rules = record_rules(model) if draws else {}
    parallelize(model, mesh, job.parallelism, job.precision)
    model.to_empty(device=mesh.device)
    model.tie_weights()
    restore_buffers(model)
    if draws:
        draw_parameters(model, rules, job.train.seed)
    elif initialize:
        load_pretrained(model, str(job.model.pretrained))
    return model


def shorten(model: nn.Module, dtype: torch.dtype) -> None:
    """Parameters of a model on the meta device in another format; its buffers (rotary frequencies)
    keep theirs, and a tied weight stays one."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


@torch.no_grad()
def check_model(model: PreTrainedModel, mesh: Mesh, cutter: Cutter) -> None:
    """Runs a few tokens through a model with weights, and leaves no trace.

    Raises ConfigError for one whose logits are not its head's product with the last hidden state
    (scaling, soft-capping): our loss would be another one. And for one that attends to later
    tokens: it would learn to copy. Raises RuntimeError for one of whose layers some do not get
    their attention from the ring.
    """
    kind = model.config.model_type
    ids = torch.arange(8, device=mesh.device)[None] % model.config.vocab_size
    other = ids.clone()
    other[0, -1] = (ids[0, -1] + 1) % model.config.vocab_size
    context = cutter.alone(ids)
    model.eval()
    with torch.compiler.set_stance("force_eager"):  # a second shape would be taken for many
        with watched(alone(), model.config.num_hidden_layers) if context else nullcontext():
            ours = model(input_ids=ids, **context)
        changed = model(input_ids=other, **context)
        theirs = _library_logits(model, ids, context)
    model.train()
    reshard(model)
    if not torch.equal(ours, theirs):
        raise ConfigError(
            f"model.type={kind} does more for its logits than its output head, which the loss by "
            "chunks does not do: choose a model without logit scaling, soft-capping or transform"
        )
    # Not equal to the bit: experts see other groups of tokens.
    eps = torch.finfo(ours.dtype).eps
    tolerance = 16 * eps * float(ours.std())
    if not torch.allclose(ours[:, :-1], changed[:, :-1], rtol=2 * eps, atol=tolerance):
        raise ConfigError(f"model.type={kind} attends to later tokens: choose a causal model")


def _library_logits(
    model: PreTrainedModel, ids: torch.Tensor, context: dict[str, Any]
) -> torch.Tensor:
    """Through the model's call, so that FSDP gathers its weights."""
    ours = model.forward
    model.forward = lambda input_ids, **context: library_logits(model, input_ids, **context)
    logits: torch.Tensor = model(input_ids=ids, **context)
    model.forward = ours
    return logits
