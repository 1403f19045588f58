"""What MLflow holds of a run that a test has made."""

from typing import Any

from ringshard.tracking import delivery, store


def ship(run: Any, attempt: int = 1) -> str:
    tracking = run.job.tracking
    shipper = delivery.Shipper(run.path, attempt, tracking.uri, tracking.experiment)
    return shipper.ship(shipper.standing()).status


def remote(run: Any) -> Any:
    """The one run of the experiment."""
    client = store.connect(run.job.tracking.uri)
    home = client.get_experiment_by_name(run.job.tracking.experiment).experiment_id
    (found,) = client.search_runs([home])
    return found


def history(run: Any, key: str = "train/loss") -> list[tuple[int, float]]:
    client = store.connect(run.job.tracking.uri)
    rows = client.get_metric_history(remote(run).info.run_id, key)
    return sorted((row.step, row.value) for row in rows)


def expected(steps: int) -> list[tuple[int, float]]:
    return [(step, 1 / (step + 1)) for step in range(steps)]
