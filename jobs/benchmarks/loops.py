"""Speed of the trainer over bare PyTorch, Fabric and accelerate: one process, one thread."""

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
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

ROUNDS, STEPS, BATCH = 9, 5, 16
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


def run() -> list[dict[str, Any]]:
    """One row per contender: tokens/s of the best round, and ratios to the bare loop, of rounds in
    which they take turns.

    The cores are shared, so the ratios are of CPU seconds (all threads of the process; the
    trainer's reading thread too) as well as of wall time. `gemm_share`: model FLOP/s of the best
    round over the GEMM peak of one thread, measured in the same run.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        job = setting(Path(folder))
        trainer, ours = ringshard(job, Path(folder))
        contenders = {"bare loop": _bare(job), "ringshard": ours}
        contenders |= {"fabric": _fabric(job)} if find_spec("lightning_fabric") else {}
        contenders |= {"accelerate": _accelerate(job)} if find_spec("accelerate") else {}
        rounds = _take_turns(contenders)
        trainer.close()
    tokens, peak, bare = (
        STEPS * BATCH * job.data.seq_len,
        trainer.recorder.peak,
        rounds["bare loop"],
    )
    return [
        {
            "contender": name,
            "tokens_per_s": tokens / min(own.wall),
            "over_bare_cpu": _median_ratio(bare.cpu, own.cpu),
            "over_bare_wall": _median_ratio(bare.wall, own.wall),
            "gemm_share": tokens / min(own.wall) * peak.flops_per_token / peak.flops_per_s,
        }
        for name, own in rounds.items()
    ]


def _median_ratio(bare: list[float], own: list[float]) -> float:
    return statistics.median(b / o for b, o in zip(bare, own, strict=True))


@dataclass
class Rounds:
    """Seconds of each round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def _take_turns(contenders: dict[str, Steps]) -> dict[str, Rounds]:
    rounds = {name: Rounds() for name in contenders}
    for number in range(1 + ROUNDS):
        for name, steps in contenders.items():
            wall, cpu = time.perf_counter(), time.process_time()
            steps(STEPS)
            if number > 0:  # the first one warms up
                rounds[name].wall.append(time.perf_counter() - wall)
                rounds[name].cpu.append(time.process_time() - cpu)
    return rounds


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
