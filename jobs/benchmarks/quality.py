"""Validation loss of nanoGPT's CPU setting on characters of one text (nanoGPT prints 1.88)."""

import os
from typing import Any

from benchmarks.command import train


def run() -> list[dict[str, Any]]:
    """One row: validation loss on the whole split, in nats per character.

    RINGSHARD_TEXT names the text (tiny Shakespeare, 1,115,394 bytes, for a comparison with
    nanoGPT).
    """
    text = os.environ["RINGSHARD_TEXT"]
    overrides = ["train.eval_sequences=0", "hardware.threads_per_process=1"]
    result = train("experiment=shakespeare_char", f"data.path={text}", *overrides)
    return [
        {
            "steps": result["step"],
            "train_loss": result["train_loss"],
            "val_loss": result["val_loss"],
            "bigram_entropy": result["bigram_entropy"],
            "tokens_per_s": result["tokens_per_s"],
            "seconds": result["seconds"],
        }
    ]
