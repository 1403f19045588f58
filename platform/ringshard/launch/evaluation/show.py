"""What jobs/evaluate.py prints."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ringshard.config.schema.evaluation import EvaluationOptions
from ringshard.config.schema.job import Job
from ringshard.launch.rundir import RunDir
from ringshard.launch.show import short


def begun(job: Job, options: EvaluationOptions, position: str) -> None:
    """What is read and where it is computed."""
    weights = Path(str(options.checkpoint or job.model.pretrained))
    averaged = ", averaged weights" if options.averaged else ""
    count = f"{options.sequences:,} sequences" if options.sequences else "all of it"
    world = job.hardware.world_size
    where = f"{world} process{'es' if world > 1 else ''} on {job.hardware.device.name}"
    print(f"{position}{short(weights)}{averaged}")
    print(f"{options.split.name} split of {', '.join(job.data.corpora)}, {count}, {where}\n")


def ended(run: RunDir, options: EvaluationOptions) -> None:
    """The numbers, the samples, and where both lie."""
    result = run.result(1)
    for name, text in _lines(result):
        print(f"{name:<12}{text}")
    for sample in result["samples"]:
        print(f"\n--- {sample['prompt']!r}, temperature {options.temperature:g}")
        print(sample["prompt"] + sample["text"])
    print(f"\n{'result':<12}{short(run.attempt(1) / 'result.json')}\n", flush=True)


def _lines(result: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("loss", f"{result['loss']:.4f} nats per token")]
    if len(result["corpora"]) > 1:
        lines += [(f"  {name}", f"{loss:.4f}") for name, loss in result["corpora"].items()]
    lines += [
        ("perplexity", f"{result['perplexity']:.4f}"),
        ("accuracy", f"{result['accuracy']:.2%} of the tokens are the likeliest"),
        ("tokens", f"{result['tokens']:,}"),
    ]
    if result["bigram_entropy"] is not None:
        lines.append(("bigrams", f"{result['bigram_entropy']:.4f} (entropy, validation split)"))
    return lines


def table(members: list[tuple[list[str], RunDir]]) -> None:
    """One line per member of a sweep, with what differs."""
    common = set.intersection(*(set(overrides) for overrides, _ in members))
    shown = Table("", "loss", "perplexity", "tokens", box=None, pad_edge=False)
    for overrides, run in members:
        own = [override.removeprefix("of.") for override in overrides if override not in common]
        result = run.result(1) or {"loss": "", "perplexity": "", "tokens": ""}
        numbers = [result["loss"], result["perplexity"], result["tokens"]]
        shown.add_row(" ".join(own), *map(_text, numbers))
    Console().print(shown)


def _text(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
