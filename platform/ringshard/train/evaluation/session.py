"""One evaluation, from joining the process group to the result."""

import time
from dataclasses import asdict
from pathlib import Path

import torch.distributed as dist
from transformers import PreTrainedModel

from ringshard import registry
from ringshard.checkpoint.load import load
from ringshard.config.schema.evaluation import EvaluationOptions, Part
from ringshard.config.schema.job import Job
from ringshard.data.dataset import Dataset
from ringshard.parallel import mesh as meshes
from ringshard.parallel.mesh import Mesh
from ringshard.train.assemble import datasets
from ringshard.train.attempt import Attempt
from ringshard.train.evaluation.loss import evaluate
from ringshard.train.evaluation.sample import sample
from ringshard.train.network import check_model, model_on
from ringshard.train.pieces import Cutter


def run(job: Job, options: EvaluationOptions, attempt: Attempt) -> None:
    """Joins the process group, evaluates, and leaves it."""
    registry.import_user_modules(job.user)
    mesh = meshes.start(job.hardware, job.parallelism)
    run_on(mesh, job, options, attempt)
    dist.barrier(mesh.cpu_group)
    dist.destroy_process_group()


def run_on(mesh: Mesh, job: Job, options: EvaluationOptions, attempt: Attempt) -> None:
    """Evaluates; rank 0 records loss, perplexity, accuracy and samples as the attempt's result."""
    training, validation = datasets(job)
    dataset = training if options.split is Part.train else validation
    model = model_on(mesh, job, dataset.vocab_size, initialize=not options.checkpoint)
    if options.checkpoint:
        path = Path(options.checkpoint)
        load(path, model, None, mesh.cpu_group, averaged=options.averaged)
    cutter = Cutter.of(job, mesh.ring)
    check_model(model, mesh, cutter)
    told = Progress() if mesh.is_first else lambda done, total: None
    found = evaluate(model, dataset, mesh, cutter, options.sequences, options.micro_batch, told)
    samples = _samples(model, cutter, dataset, options)
    if mesh.is_first:
        result = asdict(found) | {"perplexity": found.perplexity, "samples": samples}
        attempt.record_result(
            {"outcome": "finished", "bigram_entropy": dataset.bigram_entropy} | result
        )


class Progress:
    """A line now and then of how far a long evaluation is."""

    def __init__(self, every_s: float = 10.0) -> None:
        self.every_s = every_s
        self.begun = self.told = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """`done` of `total` sequences are read."""
        now = time.monotonic()
        if now - self.told >= self.every_s and done < total:
            self.told = now
            left = (now - self.begun) / done * (total - done)
            print(f"{done:,} of {total:,} sequences, {left:.0f} s left", flush=True)


def _samples(
    model: PreTrainedModel, cutter: Cutter, dataset: Dataset, options: EvaluationOptions
) -> list[dict[str, str]]:
    """The continuation of each prompt, a different draw for equal ones, the same on all ranks."""
    texts = []
    for number, prompt in enumerate(options.prompts):
        ids = dataset.encode(prompt) or [dataset.end or 0]
        seed = options.seed + number
        drawn = sample(model, cutter, ids, options.sample_tokens, options.temperature, seed)
        texts.append({"prompt": prompt, "text": dataset.decode(drawn)})
    return texts
