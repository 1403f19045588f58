"""The model of a job on its mesh, with storage and first weights; and what it must not do."""

import torch
from transformers import PreTrainedModel

from ringshard.config.schema.job import Job
from ringshard.errors import ConfigError
from ringshard.model.build import build_on_meta, library_logits
from ringshard.model.init import draw_parameters, record_rules, restore_buffers
from ringshard.model.pretrained import load_pretrained
from ringshard.parallel.mesh import Mesh
from ringshard.parallel.parallelize import parallelize, reshard


def model_on(mesh: Mesh, job: Job, vocab_size: int, initialize: bool = True) -> PreTrainedModel:
    """The model, parallel, with its initial or pretrained weights.

    initialize=False leaves garbage in them, for a checkpoint to overwrite.
    """
    model = build_on_meta(job.model, vocab_size)
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


@torch.no_grad()
def check_model(model: PreTrainedModel, mesh: Mesh) -> None:
    """Runs a few tokens through a model with weights, and leaves no trace.

    Raises ConfigError for one whose logits are not its head's product with the last hidden state
    (scaling, soft-capping): our loss would be another one. And for one that attends to later
    tokens: it would learn to copy.
    """
    kind = model.config.model_type
    ids = torch.arange(8, device=mesh.device)[None] % model.config.vocab_size
    other = ids.clone()
    other[0, -1] = (ids[0, -1] + 1) % model.config.vocab_size
    model.eval()
    ours, changed = model(input_ids=ids), model(input_ids=other)
    theirs = _library_logits(model, ids)
    model.train()
    reshard(model)
    if not torch.equal(ours, theirs):
        raise ConfigError(
            f"model.type={kind} does more for its logits than its output head, which the loss by "
            "chunks does not do: choose a model without logit scaling, soft-capping or transform"
        )
    # Not equal to the bit: experts see other groups of tokens.
    tolerance = 16 * torch.finfo(ours.dtype).eps
    if not torch.allclose(ours[:, :-1], changed[:, :-1], rtol=tolerance, atol=tolerance):
        raise ConfigError(
            f"model.type={kind} attends to later tokens: choose a causal model"
        )


def _library_logits(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    """Through the model's call, so that FSDP gathers its weights."""
    ours = model.forward
    model.forward = lambda input_ids: library_logits(model, input_ids)
    logits: torch.Tensor = model(input_ids=ids)
    model.forward = ours
    return logits
