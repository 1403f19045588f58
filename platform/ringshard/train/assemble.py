"""From a frozen job to a trainer: every object is built here, in the order in which they need each
other."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ringshard import checkpoint, optim, registry
from ringshard.checkpoint import TrainState
from ringshard.config.length import Length
from ringshard.config.schema.debug import DebugMode
from ringshard.config.schema.description import Description
from ringshard.config.schema.job import Job
from ringshard.config.schema.tracking import Backend
from ringshard.data.dataset import Dataset
from ringshard.model import flops
from ringshard.model.describe import describe_built
from ringshard.parallel.mesh import Mesh
from ringshard.parallel.parallelize import TORCH_DTYPES
from ringshard.tracking.spool import Spool
from ringshard.train.attempt import Attempt
from ringshard.train.batches import Batches
from ringshard.train.console import Console
from ringshard.train.estimate import documents
from ringshard.train.hooks import CollectGarbage, Evaluate, Hook, Log, Save
from ringshard.train.network import check_model, model_on
from ringshard.train.noise import NoiseScale
from ringshard.train.pieces import Cutter
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
    save = Save(attempt.run_dir / "checkpoints", job.checkpoint)
    newest = checkpoint.latest(save.root, mesh.cpu_group)
    model = model_on(mesh, job, training.vocab_size, initialize=newest is None)
    optimizer = optim.build(job.optimizer, model, job.train.seed, initialized=newest is None)
    release = optim.release(job.optimizer, optimizer, job.train.grad_clip)
    state = TrainState(step=0, tokens_seen=0, rows_read=0)
    if newest is not None:
        state = checkpoint.load(newest, model, optimizer, mesh.cpu_group)
    cutter = Cutter.of(job, mesh.ring, pin=mesh.device.type == "cuda")
    check_model(model, mesh, cutter)
    length = Length.of(job.train, job.data)
    description = describe_built(model)
    evaluation = Evaluate(
        validation, job.train.eval_every, job.train.eval_sequences, job.train.rows_at_once
    )
    first = mesh.is_first
    trainer = Trainer(
        job=job,
        mesh=mesh,
        model=model,
        optimizer=optimizer,
        batches=_batches(job, training, length, state, mesh, cutter),
        cutter=cutter,
        length=length,
        state=state,
        recorder=Recorder(_peak(job, mesh, description, training), mesh.device, training.corpora),
        hooks=_hooks(job, evaluation, save),
        stop_requested=stop,
        release=release,
        noise=NoiseScale(job.train.noise_scale_every),
        console=_console(job, attempt, length, state) if first else None,
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


def _batches(
    job: Job, dataset: Dataset, length: Length, state: TrainState, mesh: Mesh, cutter: Cutter
) -> Batches:
    return Batches(
        dataset,
        length.rows,
        mesh.dp_rank,
        mesh.dp_size,
        state.rows_read,
        first_step=state.step,
        repeat_first=job.train.overfit_batch,
        cut=cutter.ahead(job.train.rows_at_once),
    )


def _peak(job: Job, mesh: Mesh, description: Description, training: Dataset) -> Peak:
    dtype = TORCH_DTYPES[job.precision.compute]
    known = job.hardware.peak_tflops.get(job.precision.compute.name)
    one = known * 1e12 if known else measure_flops_per_s(mesh.device, dtype)
    lengths = documents(training, training.rows, job.data.seq_len)
    per_token = flops.per_token(description, *lengths)
    return Peak(per_token, one * mesh.world_size, mesh.world_size)


def _hooks(job: Job, evaluation: Evaluate, save: Save) -> list[Hook]:
    own = [registry.lookup("hook", name)(**args) for name, args in job.train.hooks.items()]
    return [Log(job.train.log_every), evaluation, save, CollectGarbage(), *own]


def _console(job: Job, attempt: Attempt, length: Length, state: TrainState) -> Console:
    """Plain lines for a debugger: a bar would be drawn over its prompt."""
    plain = None if job.debug.mode is DebugMode.off else False
    return Console(length.nominal_steps, state.step, is_terminal=plain, log=attempt.log)


def _spool(job: Job, attempt: Attempt) -> Spool | None:
    if job.tracking.backend is Backend.none:
        return None
    return Spool(attempt.run_dir, attempt.number, "rank0")
