"""What must hold between the optimizer and the rest of a job, each in one sentence."""

import re
from collections.abc import Iterator

from ringshard.config.length import Length
from ringshard.config.roles import ROLES
from ringshard.config.schema.job import Job
from ringshard.config.schema.optimizer import (
    OPTIMIZERS,
    AdamW4bit,
    AdamW8bit,
    AdamWHyperball,
    ByRole,
    Muon,
    Optimizer,
    ReleaseClip,
    Scaling,
)
from ringshard.config.schema.precision import Dtype, Precision
from ringshard.errors import ConfigError


def check_optimizer(job: Job) -> None:
    """Raises ConfigError for the first thing that does not fit."""
    optimizer = job.optimizer
    if type(optimizer) is Optimizer and optimizer.name in OPTIMIZERS:
        raise ConfigError(
            f"optimizer.name={optimizer.name} is the name of one of ours: rename the registered one"
        )
    _scaling(optimizer)
    if isinstance(optimizer, ByRole):
        _roles(optimizer)
        _release(job, optimizer)
    if isinstance(optimizer, Muon | AdamWHyperball):
        _matrices(optimizer)
    _weights(job.precision, optimizer)
    length = Length.of(job.train, job.data)
    if job.train.noise_scale_every and min(length.global_batch, *length.ramp, 2) < 2:
        raise ConfigError(
            f"train.noise_scale_every={job.train.noise_scale_every} compares halves of a step's"
            " rows, and a step has one: use a larger train.global_batch"
        )
    if isinstance(optimizer, AdamW8bit | AdamW4bit) and job.hardware.world_size > 1:
        raise ConfigError(
            f"optimizer={optimizer.name} runs on one process, for torchao decides by the size of a"
            " shard what is quantized: use parallelism=single hardware.processes_per_node=1, or"
            " optimizer=lion8bit"
        )


def _scaling(optimizer: Optimizer) -> None:
    scaling, reference = optimizer.lr_scaling, optimizer.lr_reference_batch
    if scaling is not Scaling.none and reference is None:
        raise ConfigError(
            f"optimizer.lr_scaling={scaling.name} needs optimizer.lr_reference_batch=…, the batch"
            " for which optimizer.lr is meant"
        )
    if scaling is Scaling.none and reference is not None:
        raise ConfigError(
            f"optimizer.lr_reference_batch={reference} would have no effect: set"
            " optimizer.lr_scaling=sqrt or linear"
        )


def _weights(precision: Precision, optimizer: Optimizer) -> None:
    if precision.weights is Dtype.fp32:
        return
    if precision.compute is Dtype.fp32:
        raise ConfigError(
            f"precision.weights={precision.weights.name} with precision.compute=fp32: set"
            " precision.compute=bf16, or leave weights in fp32"
        )
    if not isinstance(optimizer, ByRole):
        raise ConfigError(
            f"precision.weights={precision.weights.name} needs an optimizer that rounds at random,"
            f" and {optimizer.name} rounds to the nearest: use adamw, lion, lion8bit or muon"
        )


def _roles(optimizer: ByRole) -> None:
    for key, roles in (("roles", list(optimizer.roles)), ("decayed", optimizer.decayed)):
        for role in roles:
            if role not in ROLES:
                raise ConfigError(
                    f"optimizer.{key}: {role} is no role: use one of {', '.join(ROLES)}"
                )
    for role, pattern in optimizer.roles.items():
        _expression(f"optimizer.roles.{role}", pattern)
    for pattern in getattr(optimizer, "splits", {}):
        _expression("optimizer.splits", pattern)


def _expression(key: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{key}={pattern} is no regular expression: {error}") from error


def _matrices(optimizer: Muon | AdamWHyperball) -> None:
    if optimizer.adamw_lr is not None and optimizer.lr == 0:
        raise ConfigError(
            f"optimizer.lr=0 with optimizer.adamw_lr={optimizer.adamw_lr}: the rates keep their"
            " ratio over the run, give both or set adamw_lr to null"
        )


def _release(job: Job, optimizer: ByRole) -> None:
    if not optimizer.release_gradients:
        if optimizer.release_clip is not ReleaseClip.previous_norm:
            raise ConfigError(
                f"optimizer.release_clip={optimizer.release_clip.name} would have no effect:"
                " optimizer.release_gradients=true reads it"
            )
        return
    for reason in _obstacles(job, optimizer):
        raise ConfigError(f"optimizer.release_gradients=true {reason}")


def _obstacles(job: Job, optimizer: ByRole) -> Iterator[str]:
    """Why gradients can't be used one by one within the backward pass."""
    train, world = job.train, job.hardware.world_size
    rows = Length.of(train, job.data).global_batch
    readers = world // job.parallelism.cp
    if train.batch_ramp:
        yield "wants all of a process's rows at once: set train.batch_ramp=[] and its steps to 0"
    if train.micro_batch != rows // readers:
        yield (
            "updates weights in the first backward pass, and a step has"
            f" {rows // readers // train.rows_at_once}: use train.micro_batch={rows // readers}, or"
            " a smaller train.global_batch"
        )
    if world > 1 and isinstance(optimizer, Muon | AdamWHyperball):
        yield (
            f"on {world} processes would send messages for optimizer={optimizer.name} within the"
            " backward pass: use one process, or adamw, lion or lion8bit"
        )
    if world > 1 and train.grad_clip > 0 and optimizer.release_clip is ReleaseClip.per_tensor:
        yield (
            f"on {world} processes knows no norm of a whole tensor: use"
            " optimizer.release_clip=previous_norm or train.grad_clip=0"
        )
    if train.noise_scale_every:
        yield (
            f"leaves no gradient for train.noise_scale_every={train.noise_scale_every} to measure:"
            " set it to 0"
        )
    if train.grad_clip == 0 and optimizer.release_clip is ReleaseClip.per_tensor:
        yield "with train.grad_clip=0 clips nothing: leave optimizer.release_clip out"
