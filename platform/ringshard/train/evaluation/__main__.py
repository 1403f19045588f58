"""A rank of an evaluation: `python -m ringshard.train.evaluation RUN_DIR ATTEMPT`."""

import os
from pathlib import Path
from typing import cast

import yaml

from ringshard.config.schema.evaluation import EvaluationOptions
from ringshard.config.schema.reader import build, read_job
from ringshard.train.attempt import Attempt
from ringshard.train.process import run_rank


def main(run_dir: Path, number: int) -> None:
    """Evaluates what the attempt's job.yaml and evaluation.yaml describe."""
    attempt = Attempt(run_dir, number, int(os.environ.get("RANK", 0)))
    job = read_job(attempt.folder / "job.yaml")
    text = (attempt.folder / "evaluation.yaml").read_text(encoding="utf-8")
    options = cast(EvaluationOptions, build(EvaluationOptions, yaml.safe_load(text)))

    from ringshard.train.evaluation.session import run

    run(job, options, attempt)


if __name__ == "__main__":
    run_rank(main)
