"""What jobs/preflight.py reads: where, and how large the messages are."""

from dataclasses import dataclass, field

from ringshard.config.schema.hardware import Hardware
from ringshard.config.schema.prepare import Root
from ringshard.config.schema.tracking import Tracking


@dataclass
class Messages:
    """What is sent."""

    sizes_mib: list[float] = field(default_factory=lambda: [0.001, 1.0, 64.0])
    """Sizes of the messages; the last one decides the speed of a link [MiB]."""
    seconds: float = 1.0
    """How long each of them is measured [s]."""


@dataclass
class PreflightJob(Messages):
    """One look at a machine or an allocation."""

    hardware: Hardware = field(default_factory=Hardware)
    """Where."""
    tracking: Tracking = field(default_factory=Tracking)
    """Which MLflow is asked whether it takes runs: `backend`, `uri`, `experiment`."""
    output: Root = field(default_factory=Root)
    """Where the result lies: `root`/preflights."""
