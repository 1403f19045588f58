"""A rank of an evaluation: `python -m ringshard.train.evaluation RUN_DIR ATTEMPT`."""

from pathlib import Path

from ringshard.config.schema.evaluation import EvaluationOptions
from ringshard.train.attempt import Attempt
from ringshard.train.process import run_rank


def main(run_dir: Path, number: int) -> None:
    """Evaluates what the attempt's job.yaml and evaluation.yaml describe."""
    attempt = Attempt.of_rank(run_dir, number)
    job, options = attempt.job(), attempt.options(EvaluationOptions, "evaluation")

    from ringshard.train.evaluation.session import run

    run(job, options, attempt)


if __name__ == "__main__":
    run_rank(main)
