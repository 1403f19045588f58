"""What jobs/evaluate.py reads: a run or a model, what to measure, and what differs from the run."""

from dataclasses import dataclass, field
from enum import Enum

from ringshard.config.schema.data import Data
from ringshard.config.schema.debug import Debug
from ringshard.config.schema.hardware import Hardware
from ringshard.config.schema.job import Output, User
from ringshard.config.schema.parallelism import Parallelism
from ringshard.config.schema.precision import Precision


class Part(Enum):
    """Which split is read."""

    train = "train"
    validation = "validation"


@dataclass
class Measurement:
    """Loss, perplexity and accuracy on a split, and sampled text."""

    split: Part = Part.validation
    """train or validation."""
    sequences: int = 0
    """Sequences that are read; 0: the whole split [sequences]."""
    micro_batch: int = 8
    """Sequences in one forward pass of one process [sequences]."""
    averaged: bool = False
    """Whether the averages of the run's weights (optimizer.ema_decay) take their place."""
    prompts: list[str] = field(default_factory=list)
    """Beginnings of texts that are continued; an empty one starts at the end of a document."""
    sample_tokens: int = 200
    """Length of each continuation [tokens]."""
    temperature: float = 0.8
    """Divisor of the logits when sampling; 0: always the likeliest token."""
    seed: int = 1
    """Seed of the sampling."""


@dataclass
class EvaluationOptions(Measurement):
    """What the ranks read beside the job."""

    checkpoint: str | None = None
    """Checkpoint folder whose weights are evaluated; null: those of model.pretrained."""


@dataclass
class Subject:
    """What is evaluated; on the command line without `of.`."""

    run: str | None = None
    """Folder of a run, whose model, data, tokenizer and processes are taken; this or `model`."""
    model: str | None = None
    """Folder with config.json and safetensors, read through its own tokenizer; this or `run`."""
    checkpoint: str | None = None
    """Step, pin (best: of the lowest loss) or folder of a checkpoint of the run; null: the
    newest."""


@dataclass
class EvaluateJob(Measurement):
    """One evaluation; of its groups only what is named replaces what the run has."""

    of: Subject = field(default_factory=Subject)
    """A run or a model."""
    hardware: Hardware = field(default_factory=Hardware)
    """Where it runs."""
    parallelism: Parallelism = field(default_factory=Parallelism)
    """How the work is divided; the result does not depend on it."""
    precision: Precision = field(default_factory=Precision)
    """In which numbers the model computes."""
    data: Data = field(default_factory=Data)
    """Another corpus, or other rows of the run's."""
    debug: Debug = field(default_factory=Debug)
    """Running under a debugger."""
    output: Output = field(default_factory=Output)
    """Where results lie: `root`/evaluations/`name`-…"""
    user: User = field(default_factory=User)
    """Own code."""
