"""A whole job: what one `attempts/N/job.yaml` holds and every rank reads."""

from dataclasses import dataclass, field

from ringshard.config.schema.checkpoint import Checkpoint
from ringshard.config.schema.data import Data
from ringshard.config.schema.debug import Debug
from ringshard.config.schema.hardware import Hardware
from ringshard.config.schema.launcher import Launcher
from ringshard.config.schema.model import Model
from ringshard.config.schema.optimizer import Optimizer
from ringshard.config.schema.parallelism import Parallelism
from ringshard.config.schema.precision import Precision
from ringshard.config.schema.schedule import Schedule
from ringshard.config.schema.search import Search
from ringshard.config.schema.tracking import Tracking
from ringshard.config.schema.train import Train


@dataclass
class Output:
    """Where runs lie and how they are called."""

    root: str = "outputs"
    """Folder of all runs, of the token stores and of the default MLflow database."""
    name: str = "???"
    """Name of the run, the first part of its folder's name."""
    debug: bool = False
    """Whether the run lies under `root`/debug, as all do with debug=…, train.overfit_batch or
    train.detect_anomaly."""


@dataclass
class Sweep:
    """Identity of a sweep."""

    name: str | None = None
    """Runs of the same name and the same configuration are one run; null: a single run is always
    new."""


@dataclass
class User:
    """Own code without a fork."""

    modules: list[str] = field(default_factory=list)
    """Python modules imported before anything is built; they register models, optimizers, corpora
    and hooks."""
    path: str = "."
    """Folder put first on the import path for them, beginning where the command is given."""


@dataclass
class Job:
    """One training run."""

    hardware: Hardware = field(default_factory=Hardware)
    parallelism: Parallelism = field(default_factory=Parallelism)
    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    precision: Precision = field(default_factory=Precision)
    train: Train = field(default_factory=Train)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    tracking: Tracking = field(default_factory=Tracking)
    launcher: Launcher = field(default_factory=Launcher)
    debug: Debug = field(default_factory=Debug)
    output: Output = field(default_factory=Output)
    sweep: Sweep = field(default_factory=Sweep)
    search: Search = field(default_factory=Search)
    user: User = field(default_factory=User)
