"""A rank: `python -m ringshard.train RUN_DIR ATTEMPT`, started by torchrun; never Hydra, never
MLflow."""

from pathlib import Path

from ringshard.config.schema.debug import DebugMode
from ringshard.train.attempt import Attempt
from ringshard.train.process import run_rank
from ringshard.train.stop import StopRequest


def main(run_dir: Path, number: int) -> None:
    """Trains the attempt's job as the rank that the environment names; raises what goes wrong."""
    attempt = Attempt.of_rank(run_dir, number)
    job = attempt.job()
    stop = StopRequest()
    if job.debug.mode is DebugMode.ranks and job.debug.rank == attempt.rank:
        _wait_for_debugger(job.debug.port)
    # Only now: torch and transformers take seconds, and a stop request must not be lost meanwhile.
    from ringshard.train.session import train

    train(job, attempt, stop)


def _wait_for_debugger(port: int) -> None:
    import debugpy

    debugpy.listen(("127.0.0.1", port))
    debugpy.wait_for_client()


if __name__ == "__main__":
    run_rank(main)
