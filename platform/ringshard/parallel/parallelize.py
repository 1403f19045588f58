"""The order in which a model is made parallel: activation checkpointing, compile, FSDP2.

Another order goes wrong silently: compiling a sharded or a later-wrapped block captures no graph.
"""

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from transformers import PreTrainedModel

from ringshard.config.schema.parallelism import ActivationCheckpoint, Attention, Parallelism
from ringshard.config.schema.precision import Dtype, Precision
from ringshard.model.parts import Parts, parts
from ringshard.parallel.mesh import Mesh
from ringshard.parallel.ring.recompute import keep_attention

TORCH_DTYPES = {Dtype.fp32: torch.float32, Dtype.bf16: torch.bfloat16}


def parallelize(
    model: PreTrainedModel, mesh: Mesh, parallelism: Parallelism, precision: Precision
) -> None:
    """Makes `model` (on the meta device) parallel in place, as the configuration says."""
    units = parts(model)
    if parallelism.activation_checkpoint is ActivationCheckpoint.block:
        recompute_blocks(units.blocks, parallelism.attention)
    if parallelism.compile:
        for block in units.blocks:
            block.compile()
    # One process in fp32 has nothing to gather and nothing to cast.
    if mesh.world_size > 1 or precision.compute is not Dtype.fp32:
        shard(model, units, mesh, parallelism, precision)


def recompute_blocks(blocks: nn.ModuleList, attention: Attention) -> None:
    """Each block keeps its input alone and is computed again in the backward pass; only the output
    of ring attention is kept as well, for it costs a round of messages."""
    kept = {"context_fn": keep_attention} if attention is Attention.ring else {}
    for index, block in enumerate(blocks):
        blocks[index] = checkpoint_wrapper(
            block, checkpoint_impl=CheckpointImpl.NO_REENTRANT, **kept
        )


def shard(
    model: nn.Module, units: Parts, mesh: Mesh, parallelism: Parallelism, precision: Precision
) -> None:
    """FSDP2: one group per block, the embedding alone, final norm and head together, the rest in
    the root.

    A tied head needs its weight in the group of the embedding: both stay in the root's.
    """
    policy = MixedPrecisionPolicy(
        param_dtype=TORCH_DTYPES[precision.compute], reduce_dtype=TORCH_DTYPES[precision.reduce]
    )
    reshard = parallelism.reshard_after_forward
    for block in units.blocks:
        fully_shard(block, mesh=mesh.fsdp, mp_policy=policy, reshard_after_forward=reshard)
    if not units.tied:
        fully_shard(
            units.embedding, mesh=mesh.fsdp, mp_policy=policy, reshard_after_forward=reshard
        )
        # Its weights are wanted again at once by the backward pass.
        last = [*units.others, units.head]
        fully_shard(last, mesh=mesh.fsdp, mp_policy=policy, reshard_after_forward=False)
    fully_shard(model, mesh=mesh.fsdp, mp_policy=policy, reshard_after_forward=False)
    sum_gradients(model)


def sum_gradients(model: nn.Module) -> None:
    """Gradients are summed over the ranks, for the loss is divided by the global token count
    already.

    Neither setter reaches the modules below; gloo has no PREMUL_SUM, hence the second one.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def reshard(model: nn.Module) -> None:
    """Puts the shards back in place of full weights, which a forward without a backward pass
    leaves behind."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def accumulate(model: nn.Module, last: bool) -> None:
    """Before the backward pass of a micro-batch: replicas exchange gradients after the last one
    only."""
    if isinstance(model, FSDPModule):
        model.set_requires_all_reduce(last)
        model.set_is_last_backward(last)
