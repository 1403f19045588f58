"""Where metrics go."""

from dataclasses import dataclass
from enum import Enum


class Backend(Enum):
    """mlflow: spooled and shipped to MLflow; jsonl: the spool alone; none: nothing is recorded."""

    mlflow = "mlflow"
    jsonl = "jsonl"
    none = "none"

    @property
    def records(self) -> bool:
        """Whether anything is written down."""
        return self is not Backend.none

    @property
    def ships(self) -> bool:
        """Whether it goes on to MLflow."""
        return self is Backend.mlflow


@dataclass
class Tracking:
    """Rank 0 appends metrics to the run's spool; the agent ships them."""

    backend: Backend = Backend.mlflow
    """mlflow, jsonl or none."""
    uri: str = "sqlite:///${output.root}/mlflow.db"
    """MLflow tracking URI; sqlite:///… for a file, http://… for a server; a password is exported
    as MLFLOW_TRACKING_PASSWORD."""
    experiment: str = "ringshard"
    """MLflow experiment."""
    flush_timeout_s: float = 30.0
    """How long the end of a run waits for the last points to be shipped [s]."""
    system_every_s: float = 15.0
    """How often each node's load, memory, disk, network and GPUs are noted [s]; 0: never."""

    @property
    def ships_to_file(self) -> bool:
        """Whether it goes to a file, which no node of a cluster opens."""
        return self.backend.ships and self.uri.startswith("sqlite:")
