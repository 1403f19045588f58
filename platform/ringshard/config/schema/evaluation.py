"""What `jobs/evaluate.py` measures, beside the job that says with which model, data and
processes."""

from dataclasses import dataclass, field
from enum import Enum


class Part(Enum):
    """Which split is read."""

    train = "train"
    validation = "validation"


@dataclass
class Measurement:
    """Loss and perplexity on a split, and sampled text."""

    split: Part = Part.validation
    """train or validation."""
    sequences: int = 0
    """Sequences that are read; 0: the whole split [sequences]."""
    micro_batch: int = 8
    """Sequences in one forward pass of one process [sequences]."""
    prompts: list[str] = field(default_factory=list)
    """Beginnings of texts that are continued; an empty one starts at the end of a document."""
    sample_tokens: int = 200
    """Length of each continuation [tokens]."""
    temperature: float = 0.8
    """Divisor of the logits when sampling; 0: always the likeliest token."""
    seed: int = 1
    """Seed of the sampling."""


@dataclass
class Evaluation(Measurement):
    """What the ranks read beside the job."""

    checkpoint: str | None = None
    """Checkpoint folder whose weights are evaluated; null: those of model.pretrained."""
