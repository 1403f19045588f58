"""A rank of a preflight: `python -m ringshard.train.preflight RUN_DIR ATTEMPT`."""

from pathlib import Path

from ringshard.config.schema.preflight import Messages
from ringshard.config.schema.tracking import Tracking
from ringshard.train.attempt import Attempt
from ringshard.train.process import run_rank


def main(run_dir: Path, number: int) -> None:
    """Measures what the attempt's preflight.yaml asks for."""
    attempt = Attempt.of_rank(run_dir, number)
    job, messages = attempt.job(), attempt.options(Messages, "preflight")
    tracking = attempt.options(Tracking, "tracking")

    from ringshard.train.preflight.look import look

    look(job, messages, tracking, attempt)


if __name__ == "__main__":
    run_rank(main)
