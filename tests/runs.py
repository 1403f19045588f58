"""Small real runs without a launcher: prepared text, a run folder, attempts on forked ranks."""

import itertools
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from parity.curves import MODELS, full_parameters
from ranks import run_ranks
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from ringshard.config.schema.checkpoint import Checkpoint
from ringshard.config.schema.data import Corpus, Data, Split
from ringshard.config.schema.job import Job
from ringshard.config.schema.model import Model
from ringshard.config.schema.optimizer import AdamW
from ringshard.config.schema.schedule import Cosine
from ringshard.config.schema.train import Train
from ringshard.data.prepare import prepare
from ringshard.parallel import mesh as meshes
from ringshard.tracking.spool import read_spool
from ringshard.train.attempt import Attempt
from ringshard.train.session import train_on

MODEL = Model(type="llama", config=MODELS["llama"].config)


def small_job(folder: Path, **train: Any) -> Job:
    """A job on a very small language, its data prepared: about 34 rows make an epoch."""
    folder.mkdir(exist_ok=True)
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
    text = " ".join(random.Random(0).choices(words, k=600))
    (folder / "text.txt").write_text(text)
    data = Data(
        corpora={"text": Corpus(path=str(folder / "text.txt"))},
        seq_len=64,
        split=Split.position,
        validation_share=0.2,
        cache=str(folder / "data"),
    )
    prepared = prepare(data)
    settings = {"steps": 12, "global_batch": 8, "micro_batch": 2, "eval_every": 5, "log_every": 3}
    return Job(
        model=replace(MODEL, config=dict(MODEL.config)),
        data=replace(data, prepared=prepared.prepared, digest=prepared.digest),
        optimizer=AdamW(lr=3e-3),
        schedule=Cosine(warmup_steps=2),
        train=Train(**settings | {"eval_sequences": 5} | train),
        checkpoint=Checkpoint(every=4),
    )


def run_attempt(
    job: Job,
    run_dir: Path,
    number: int,
    world: int = 1,
    stop_before: int | None = None,
    die_before: int | None = None,
) -> dict[str, torch.Tensor]:
    """Trains as attempt `number` on forked ranks; returns the whole parameters at its end.

    stop_before: the last rank alone is asked to stop, when it announces this step.
    die_before: every rank ends when it announces this step, with nothing saved or reported.
    """
    (run_dir / "attempts" / str(number)).mkdir(parents=True)
    return run_ranks(world, _attempt, job, run_dir, number, stop_before, die_before)[0]


class _DeathError(Exception):
    pass


def _attempt(
    job: Job, run_dir: Path, number: int, stop_before: int | None, die_before: int | None
) -> dict[str, torch.Tensor]:
    mesh = meshes.build(job.parallelism, torch.device("cpu"))
    steps, last = itertools.count(), mesh.rank == mesh.world_size - 1

    def stop() -> bool:
        step = next(steps)
        if step == die_before:
            raise _DeathError
        return step == stop_before and last

    try:
        assembly = train_on(mesh, job, Attempt(run_dir, number, mesh.rank), stop, time.time())
    except _DeathError:
        return {}
    return full_parameters(assembly.trainer.model)


def parameters_of(run: Path) -> dict[str, torch.Tensor]:
    """All tensors of a run's newest checkpoint, whole."""
    newest = max((run / "checkpoints").glob("step-*"))
    dcp_to_torch_save(newest, run / "whole.pt")
    return dict(torch.load(run / "whole.pt", weights_only=True))


def curve(run_dir: Path, metric: str = "train/loss") -> dict[int, float]:
    """A metric of every step, from the spools; a step that was trained twice must agree with
    itself."""
    found: dict[int, float] = {}
    for spool in sorted((run_dir / "track").glob("spool-*")):
        for record, _ in read_spool(spool):
            assert record is not None
            if metric in record.metrics:
                value = record.metrics[metric]
                assert found.setdefault(record.step, value) == value, f"step {record.step} differs"
    return found
