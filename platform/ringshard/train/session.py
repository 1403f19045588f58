"""One attempt from joining the process group to the result."""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ringshard import optim, registry
from ringshard.checkpoint import random_state
from ringshard.checkpoint.load import latest
from ringshard.config.schema.description import Description
from ringshard.config.schema.job import Job
from ringshard.config.schema.optimizer import (
    AdamWHyperball,
    ByRole,
    Muon,
    ReleaseClip,
    Scaling,
)
from ringshard.config.schema.precision import Dtype
from ringshard.model.init import hashed_seed
from ringshard.optim import schedule
from ringshard.parallel import mesh as meshes
from ringshard.parallel.mesh import Mesh
from ringshard.train.assemble import Assembly, assemble
from ringshard.train.attempt import Attempt
from ringshard.train.estimate import estimate
from ringshard.train.recorder import peak_memory_gib


def train(job: Job, attempt: Attempt, stop: Callable[[], bool]) -> None:
    """Joins the job's process group, trains, and leaves it."""
    started = time.time()
    mesh = meshes.start(job.hardware, job.parallelism)
    train_on(mesh, job, attempt, stop, started)
    dist.barrier(mesh.cpu_group)
    dist.destroy_process_group()


def train_on(
    mesh: Mesh, job: Job, attempt: Attempt, stop: Callable[[], bool], started: float
) -> Assembly:
    """Trains `job` to its end, or until asked to stop, and records the result (rank 0)."""
    registry.import_user_modules(job.user)
    random_state.seed(hashed_seed(job.train.seed, mesh.rank))
    torch.autograd.set_detect_anomaly(job.train.detect_anomaly)
    assembly = assemble(job, attempt, mesh, stop)
    trainer = assembly.trainer
    if trainer.console:
        trainer.console.start(f"Training in {attempt.run_dir}", _facts(job, assembly))
        table = optim.who_gets_what(trainer.optimizer, trainer.model, job.optimizer)
        for note in (*assembly.notes, "\n".join(["", *table])):
            trainer.note(f"{note}\n")
        for reason in _topology_matters(job, assembly.description):
            trainer.note(f"{reason}: on another topology the curve would be another one\n")
        if _clips_late(job):
            trainer.note(
                f"train.grad_clip={job.train.grad_clip:g} scales each gradient by the norm of the"
                " step before: optimizer.release_gradients=true uses it before its own is known\n"
            )
    try:
        finished = trainer.run()
        if not finished:
            assembly.save.save(trainer)
        assembly.save.finish(trainer)
    finally:  # what the disk refused is told at the end of the spool, whatever the end is
        trainer.close()
    if mesh.is_first:
        attempt.record_result(_result(assembly, finished, time.time() - started))
    return assembly


def _facts(job: Job, assembly: Assembly) -> dict[str, str]:
    trainer, data, parallelism = assembly.trainer, assembly.validation, job.parallelism
    length = trainer.length
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    accumulation = length.global_batch // (trainer.mesh.dp_size * job.train.rows_at_once)
    return {
        "model": f"{trainer.model.config.model_type}, {parameters:,} parameters",
        "data": f"{', '.join(data.corpora)}, {data.vocab_size} token ids",
        "batch": f"{length.global_batch} sequences, {length.tokens_per_step:,} tokens a step "
        f"({trainer.mesh.dp_size} × {accumulation} × {job.train.rows_at_once})",
        "rate": _rate(job),
        "processes": f"{trainer.mesh.world_size} on {job.hardware.device.name} (dp_replicate "
        f"{parallelism.dp_replicate} × dp_shard {parallelism.dp_shard} × cp {parallelism.cp})",
        **_ring(job, assembly),
        "estimate": estimate(
            job,
            trainer.mesh,
            assembly.description,
            trainer.recorder.peak,
            length.tokens_per_step,
        ),
        "steps": f"{trainer.state.step} to {length.nominal_steps}",
    }


def _ring(job: Job, assembly: Assembly) -> dict[str, str]:
    """How sequences are cut and keys travel; nothing where they stay whole."""
    if assembly.trainer.mesh.ring.size == 1:
        return {}
    rows = assembly.training.read(0, job.train.rows_at_once)
    return {"ring": assembly.trainer.cutter.described(rows.bounds)}


def _rate(job: Job) -> str:
    """The peak learning rates, and where they come from."""
    optimizer, batch = job.optimizer, job.train.global_batch
    peak = schedule.peak(optimizer, batch)
    told = f"{peak:.3g} at its peak"
    if optimizer.lr_reference_batch is not None:
        rule = "√" if optimizer.lr_scaling is Scaling.sqrt else ""
        told += f" ({optimizer.lr:.3g} × {rule}({batch} / {optimizer.lr_reference_batch}))"
    if isinstance(optimizer, Muon | AdamWHyperball) and optimizer.adamw_lr is not None:
        told += f"; AdamW's {optimizer.adamw_lr * peak / optimizer.lr:.3g}"
    return told


def _clips_late(job: Job) -> bool:
    """Whether gradients are clipped by the norm of the step before."""
    optimizer = job.optimizer
    return (
        isinstance(optimizer, ByRole)
        and optimizer.release_gradients
        and optimizer.release_clip is ReleaseClip.previous_norm
        and job.train.grad_clip > 0
    )


def _topology_matters(job: Job, description: Description) -> list[str]:
    """Why the curve is not a function of the config alone; empty where it is."""
    dtypes = {"compute": job.precision.compute, "reduce": job.precision.reduce}
    short = [f"precision.{k}={d.name}" for k, d in dtypes.items() if d is not Dtype.fp32]
    return short + [f"model.config.{name}={p}" for name, p in description.dropouts.items()]


def _result(assembly: Assembly, finished: bool, seconds: float) -> dict[str, Any]:
    trainer, evaluation = assembly.trainer, assembly.evaluation.latest
    newest = latest(assembly.save.saver.place.root)
    rates = trainer.recorder.rates()
    return {
        "outcome": "finished" if finished else "stopped",
        "step": trainer.state.step,
        "tokens": trainer.state.tokens_seen,
        "train_loss": trainer.last_loss,
        "skipped": trainer.recorder.skipped,
        "skipped_at_end": trainer.recorder.skipped_at_end,
        "val_loss": evaluation.loss if evaluation else None,
        "bigram_entropy": assembly.validation.bigram_entropy,
        "tokens_per_s": rates["perf/tokens_per_s"],
        "mfu": rates["perf/mfu"],
        "peak_memory_gib": peak_memory_gib(trainer.mesh.device),
        "seconds": seconds,
        "checkpoint": str(newest) if newest else None,
    }
