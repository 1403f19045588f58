"""From a frozen job to a trainer: every object is built here, in the order in which they need each
other."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch.distributed as dist
from transformers import PretrainedConfig

from ringshard import optim, registry
from ringshard.checkpoint.load import latest, restore
from ringshard.checkpoint.save import Place
from ringshard.checkpoint.saver import Saver
from ringshard.checkpoint.state import TrainState
from ringshard.config.length import Length
from ringshard.config.overlap import flops_per_byte
from ringshard.config.schema.debug import DebugMode
from ringshard.config.schema.description import Description
from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import plain
from ringshard.data.dataset import Dataset
from ringshard.files import read_json
from ringshard.model import flops
from ringshard.model.describe import describe_built
from ringshard.parallel.mesh import Mesh
from ringshard.parallel.parallelize import TORCH_DTYPES
from ringshard.parallel.ring.share import hop_in_pairs
from ringshard.tracking.sink import Sink, Unrecorded, sink
from ringshard.train.attempt import Attempt
from ringshard.train.batches import Batches
from ringshard.train.console import Console
from ringshard.train.estimate import documents
from ringshard.train.hooks import CollectGarbage, Evaluate, FirstStep, Hook, Log, Save
from ringshard.train.network import check_model, model_on
from ringshard.train.noise import NoiseScale
from ringshard.train.pieces import Cutter
from ringshard.train.recorder import Peak, Recorder, measure_flops_per_s
from ringshard.train.trainer import Trainer

AXES = ("dp_replicate", "dp_shard", "cp")
SAVING_TIMEOUT = timedelta(minutes=30)
"""How long a rank that has saved waits for the slowest one's disk."""


@dataclass(frozen=True)
class Assembly:
    """A trainer and those of its parts that are asked for again at the end."""

    trainer: Trainer
    description: Description
    training: Dataset
    validation: Dataset
    evaluation: Evaluate
    save: Save
    notes: list[str]
    """What the user should know of the checkpoint that was restored."""


def assemble(job: Job, attempt: Attempt, mesh: Mesh, stop: Callable[[], bool]) -> Assembly:
    """Everything that trains `job`, at the position of the newest checkpoint of its run."""
    training, validation = datasets(job)
    root, group = attempt.run_dir / "checkpoints", mesh.cpu_group
    is_new = latest(root, group) is None
    model = model_on(mesh, job, training.vocab_size, initialize=is_new)
    optimizer = optim.build(job.optimizer, model, job.train.seed, initialized=is_new)
    release = optim.release(job.optimizer, optimizer, job.train.grad_clip)
    notes: list[str] = []
    restored = restore(root, model, optimizer, group, job.checkpoint.verify, notes.append)
    state = restored or TrainState(step=0, tokens_seen=0, rows_read=0)
    place = _place(root, job, attempt, model.config)
    description = describe_built(model)
    cutter = Cutter.of(job, mesh.ring, _hop(job, description), pin=mesh.device.type == "cuda")
    check_model(model, mesh, cutter)
    length = Length.of(job.train, job.data)
    evaluation = Evaluate(
        validation, job.train.eval_every, job.train.eval_sequences, job.train.rows_at_once
    )
    saving = dist.new_group(backend="gloo", timeout=SAVING_TIMEOUT)
    save = Save(Saver(place, saving), job.checkpoint, evaluation)
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
        hooks=_hooks(job, attempt, evaluation, save),
        stop_requested=stop,
        release=release,
        noise=NoiseScale.resumed(job.train.noise_scale_every, state.noise),
        console=_console(job, attempt, length, state) if first else None,
        sink=_sink(job, attempt) if first else Unrecorded(),
    )
    return Assembly(trainer, description, training, validation, evaluation, save, notes)


def _place(root: Path, job: Job, attempt: Attempt, config: PretrainedConfig) -> Place:
    return Place(
        root,
        job.checkpoint.keep,
        job.checkpoint.keep_every,
        job.checkpoint.keep_best,
        about={
            "attempt": attempt.number,
            "config": json.loads(config.to_json_string()),
            "data": job.data.digest,
            "mesh": {name: getattr(job.parallelism, name) for name in AXES},
            "schedule": plain(job.schedule),
            "signature": (read_json(attempt.run_dir / "run.json") or {}).get("signature"),
        },
    )


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


def _hop(job: Job, description: Description) -> float:
    """How long keys and values of a rank travel, as `Cutting` wants it."""
    return hop_in_pairs(
        job.data.seq_len // job.parallelism.cp,
        description.heads,
        description.kv_heads,
        TORCH_DTYPES[job.precision.compute].itemsize,
        flops_per_byte(job),
    )


def _peak(job: Job, mesh: Mesh, description: Description, training: Dataset) -> Peak:
    dtype = TORCH_DTYPES[job.precision.compute]
    known = job.hardware.peak_tflops.get(job.precision.compute.name)
    one = known * 1e12 if known else measure_flops_per_s(mesh.device, dtype)
    lengths = documents(training, training.rows, job.data.seq_len)
    per_token = flops.per_token(description, *lengths)
    return Peak(per_token, one * mesh.world_size, mesh.world_size)


def _hooks(job: Job, attempt: Attempt, evaluation: Evaluate, save: Save) -> list[Hook]:
    own = [_own_hook(name, args) for name, args in job.train.hooks.items()]
    log = Log(job.train.log_every)
    return [FirstStep(attempt), log, evaluation, save, CollectGarbage(), *own]


def _own_hook(name: str, args: dict[str, Any]) -> Hook:
    make = registry.lookup("hook", name)
    with registry.blamed(f"train.hooks.{name}"):
        return cast(Hook, make(**args))


def _console(job: Job, attempt: Attempt, length: Length, state: TrainState) -> Console:
    """Plain lines for a debugger: a bar would be drawn over its prompt."""
    plain = None if job.debug.mode is DebugMode.off else False
    return Console(length.nominal_steps, state.step, is_terminal=plain, log=attempt.log)


def _sink(job: Job, attempt: Attempt) -> Sink:
    return sink(job.tracking.backend, attempt.run_dir, attempt.number)
