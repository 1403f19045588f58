"""A rank of a preflight: `python -m ringshard.train.preflight RUN_DIR ATTEMPT`."""

import os
from pathlib import Path
from typing import cast

import yaml

from ringshard.config.schema.preflight import Messages
from ringshard.config.schema.reader import build, read_job
from ringshard.train.attempt import Attempt
from ringshard.train.process import run_rank


def main(run_dir: Path, number: int) -> None:
    """Measures what the attempt's preflight.yaml asks for."""
    attempt = Attempt(run_dir, number, int(os.environ.get("RANK", 0)))
    job = read_job(attempt.folder / "job.yaml")
    text = (attempt.folder / "preflight.yaml").read_text(encoding="utf-8")
    messages = cast(Messages, build(Messages, yaml.safe_load(text)))

    from ringshard.train.preflight.look import look

    look(job, messages, attempt)


if __name__ == "__main__":
    run_rank(main)
