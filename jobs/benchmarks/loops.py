"""Training loops that are compared, each in a process of its own.

`python loops.py NAME FOLDER` keeps its files in FOLDER, and for each line of its input
takes STEPS steps and prints what they took.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForCausalLM

from ringshard.config.schema.data import Corpus, CorpusKind, Data, Packing
from ringshard.config.schema.hardware import Hardware
from ringshard.config.schema.job import Job
from ringshard.config.schema.model import Model
from ringshard.config.schema.optimizer import AdamW
from ringshard.config.schema.parallelism import Parallelism
from ringshard.config.schema.schedule import Constant
from ringshard.config.schema.train import Train
from ringshard.data.dataset import Dataset
from ringshard.data.prepare import prepare
from ringshard.model.architecture import architecture
from ringshard.parallel import mesh as meshes
from ringshard.train.assemble import assemble
from ringshard.train.attempt import Attempt

STEPS, BATCH = 5, 16
MODEL = Model(
    type="llama",
    config={
        "hidden_size": 128,
        "intermediate_size": 352,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
)
Steps = Callable[[int], None]


def setting(folder: Path) -> Job:
    data = Data(
        corpora={"stdlib": Corpus(kind=CorpusKind.python_stdlib)},
        packing=Packing.concat,  # the others know of no documents
        cache=str(folder / "data"),
    )
    prepared = prepare(data)
    return Job(
        hardware=Hardware(processes_per_node=1, threads_per_process=1),
        parallelism=Parallelism(),
        model=MODEL,
        data=replace(data, prepared=prepared.prepared, digest=prepared.digest),
        optimizer=AdamW(),
        schedule=Constant(warmup_steps=0),
        train=Train(steps=STEPS, global_batch=BATCH, micro_batch=BATCH, eval_every=10**9),
    )


def ringshard(job: Job, folder: Path) -> tuple[Any, Steps]:
    """The trainer with all that a run has: spool, console, agreement, prefetching."""
    mesh = meshes.start(job.hardware, job.parallelism)
    attempt = Attempt(folder / "run", 1, 0)
    attempt.folder.mkdir(parents=True)
    trainer = assemble(job, attempt, mesh, lambda: False).trainer
    trainer.hooks = trainer.hooks[:1]  # evaluation and checkpoints are nobody else's
    trainer.console = None
    taken = itertools.count(STEPS, STEPS)

    def steps(count: int) -> None:
        trainer.length = replace(trainer.length, steps=next(taken))
        trainer.run()

    return trainer, steps


def _batches(job: Job) -> Iterator[Tensor]:
    dataset = Dataset(Path(str(job.data.prepared)), "train", 1)
    for step in itertools.count():
        yield torch.from_numpy(dataset.read(step * BATCH, (step + 1) * BATCH).tokens)


def _parts(job: Job) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = AutoModelForCausalLM.from_config(architecture(MODEL, 257))
    betas = (0.9, 0.95)
    return model, torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=betas, weight_decay=0.1, fused=True
    )


def _loss(model: torch.nn.Module, tokens: Tensor) -> Tensor:
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def _bare(job: Job) -> Steps:
    model, optimizer = _parts(job)
    batches = _batches(job)

    def steps(count: int) -> None:
        for _ in range(count):
            loss = _loss(model, next(batches))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        loss.item()

    return steps


def _fabric(job: Job) -> Steps:
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    model, optimizer = fabric.setup(*_parts(job))
    batches = _batches(job)

    def steps(count: int) -> None:
        for _ in range(count):
            loss = _loss(model, next(batches))
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
        loss.item()

    return steps


def _accelerate(job: Job) -> Steps:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(*_parts(job))
    batches = _batches(job)

    def steps(count: int) -> None:
        for _ in range(count):
            loss = _loss(model, next(batches))
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        loss.item()

    return steps


LOOPS = {
    "bare loop": _bare,
    "bare loop, environment of a rank": _bare,
    "fabric": _fabric,
    "accelerate": _accelerate,
}


def main(name: str, folder: Path) -> None:
    """Serves rounds of one loop; prints a line of JSON for each."""
    torch.set_num_threads(1)
    job = setting(folder)
    if name == "ringshard":
        trainer, steps = ringshard(job, folder)
        _say(flops_per_token=trainer.recorder.peak.flops_per_token,
             gemm_flops_per_s=trainer.recorder.peak.flops_per_s)  # fmt: skip
    else:
        steps = LOOPS[name](job)
        _say()
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        steps(STEPS)
        _say(wall=time.perf_counter() - wall, cpu=time.process_time() - cpu)
    if name == "ringshard":
        trainer.close()


def _say(**numbers: float) -> None:
    print(json.dumps(numbers), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
