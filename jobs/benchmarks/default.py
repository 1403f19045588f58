"""The README's default job, to its end: its loss beside what no bigram model can beat."""

from typing import Any

from benchmarks.command import train


def run() -> list[dict[str, Any]]:
    """One row: losses in nats per byte, speed, and the whole time of the ranks [s]."""
    result = train()
    names = ("step", "train_loss", "val_loss", "bigram_entropy", "tokens_per_s", "mfu", "seconds")
    return [{name: result[name] for name in names}]
