"""From a frozen job to a trainer: every object is built here, in the order in which they need each
other."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from ringshard import checkpoint, optim, registry
from ringshard.checkpoint import TrainState
from ringshard.config.length import Length
from ringshard.config.schema.description import Description
from ringshard.config.schema.job import Job
from ringshard.config.schema.tracking import Backend
from ringshard.data.dataset import Dataset
from ringshard.errors import ConfigError
from ringshard.model import flops
from ringshard.model.build import build_on_meta, library_logits
from ringshard.model.describe import describe
from ringshard.model.init import draw_parameters, record_rules, restore_buffers
from ringshard.model.pretrained import load_pretrained
from ringshard.parallel.mesh import Mesh
from ringshard.parallel.parallelize import TORCH_DTYPES, parallelize, reshard
from ringshard.tracking.spool import Spool
from ringshard.train.attempt import Attempt
from ringshard.train.batches import Batches
from ringshard.train.console import Console
from ringshard.train.hooks import CollectGarbage, Evaluate, Hook, Log, Save
from ringshard.train.recorder import Peak, Recorder, measure_flops_per_s
from ringshard.train.trainer import Trainer


@dataclass(frozen=True)
class Assembly:
    """A trainer and those of its parts that are asked for again at the end."""

    trainer: Trainer
    description: Description
    validation: Dataset
    evaluation: Evaluate
    save: Save


def assemble(job: Job, attempt: Attempt, mesh: Mesh, stop: Callable[[], bool]) -> Assembly:
    """Everything that trains `job`, at the position of the newest checkpoint of its run."""
    training, validation = datasets(job)
    model = model_on(mesh, job, training.vocab_size)
    check_head(model, mesh)
    optimizer = optim.build(job.optimizer, model)
    save = Save(
        attempt.run_dir / "checkpoints",
        job.checkpoint.every,
        job.checkpoint.at_end,
        job.checkpoint.keep,
    )
    state = _state(save.root, model, optimizer, mesh)
    length = Length.of(job.train, job.data)
    description = describe(job.model, training.vocab_size)
    evaluation = Evaluate(
        validation, job.train.eval_every, job.train.eval_sequences, job.train.micro_batch
    )
    first = mesh.is_first
    trainer = Trainer(
        job=job,
        mesh=mesh,
        model=model,
        optimizer=optimizer,
        batches=_batches(job, training, length, state, mesh),
        length=length,
        state=state,
        recorder=Recorder(_peak(job, mesh, description), mesh.device, training.corpora),
        hooks=_hooks(job, evaluation, save),
        stop_requested=stop,
        console=Console(length.nominal_steps, state.step, log=attempt.log) if first else None,
        spool=_spool(job, attempt) if first else None,
    )
    return Assembly(trainer, description, validation, evaluation, save)


def datasets(job: Job) -> tuple[Dataset, Dataset]:
    """The training and the validation split."""
    assert job.data.prepared is not None, "a frozen job names its prepared data"
    folder, seed = Path(job.data.prepared), job.train.seed
    training = Dataset(folder, "train", seed)
    if training.digest != job.data.digest:
        raise RuntimeError(
            f"{folder} has digest {training.digest}, the job was frozen with {job.data.digest}"
        )
    return training, Dataset(folder, "validation", seed)


def model_on(mesh: Mesh, job: Job, vocab_size: int) -> PreTrainedModel:
    """The model, parallel and with its initial or pretrained weights."""
    model = build_on_meta(job.model, vocab_size)
    rules = None if job.model.pretrained else record_rules(model)
    parallelize(model, mesh, job.parallelism, job.precision)
    model.to_empty(device=mesh.device)
    model.tie_weights()
    restore_buffers(model)
    if rules is None:
        load_pretrained(model, str(job.model.pretrained))
    else:
        draw_parameters(model, rules, job.train.seed)
    return model


@torch.no_grad()
def check_head(model: PreTrainedModel, mesh: Mesh) -> None:
    """Compares our logits with the library's on a few tokens.

    Raises ConfigError for a model that does more after its head (scaling, soft-capping): its loss
    would be wrong.
    """
    ids = torch.arange(8, device=mesh.device)[None] % model.config.vocab_size
    model.eval()
    ours = model(input_ids=ids)
    model.forward, forward = lambda input_ids: library_logits(model, input_ids), model.forward
    theirs = model(input_ids=ids)
    model.forward = forward
    model.train()
    reshard(model)
    if not torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4):
        raise ConfigError(
            f"model.type={model.config.model_type} changes its logits after the output head, which "
            "the loss by chunks does not do: choose a model without logit scaling or soft-capping"
        )


def _state(
    root: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer, mesh: Mesh
) -> TrainState:
    newest = checkpoint.latest(root, mesh.host)
    if newest is None:
        return TrainState(step=0, tokens_seen=0, rows_read=0)
    return checkpoint.load(newest, model, optimizer, mesh.host)


def _batches(job: Job, dataset: Dataset, length: Length, state: TrainState, mesh: Mesh) -> Batches:
    return Batches(
        dataset,
        length.global_batch,
        mesh.dp_rank,
        mesh.dp_size,
        state.rows_read,
        repeat_first=job.train.overfit_batch,
        pin=mesh.device.type == "cuda",
    )


def _peak(job: Job, mesh: Mesh, description: Description) -> Peak:
    dtype = TORCH_DTYPES[job.precision.compute]
    known = job.hardware.peak_tflops
    one = known * 1e12 if known else measure_flops_per_s(mesh.device, dtype)
    return Peak(
        flops.per_token(description, job.data.seq_len), one * mesh.world_size, mesh.world_size
    )


def _hooks(job: Job, evaluation: Evaluate, save: Save) -> list[Hook]:
    own = [registry.lookup("hook", name)(**args) for name, args in job.train.hooks.items()]
    return [Log(job.train.log_every), evaluation, save, CollectGarbage(), *own]


def _spool(job: Job, attempt: Attempt) -> Spool | None:
    if job.tracking.backend is Backend.none:
        return None
    return Spool(attempt.run_dir, attempt.number, "rank0")
