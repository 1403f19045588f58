"""What jobs/evaluate.py reads: a run or a model, what to measure, and what differs from the run."""

from dataclasses import dataclass, field

from ringshard.config.schema.data import Data
from ringshard.config.schema.debug import Debug
from ringshard.config.schema.evaluation import Measurement
from ringshard.config.schema.hardware import Hardware
from ringshard.config.schema.job import Output, User
from ringshard.config.schema.parallelism import Parallelism
from ringshard.config.schema.precision import Precision


@dataclass
class Subject:
    """What is evaluated; on the command line without `of.`."""

    run: str | None = None
    """Folder of a run, whose model, data, tokenizer and processes are taken; this or `model`."""
    model: str | None = None
    """Folder with config.json and safetensors, read through its own tokenizer; this or `run`."""
    checkpoint: str | None = None
    """Step or folder of a checkpoint of the run; null: the newest."""


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
