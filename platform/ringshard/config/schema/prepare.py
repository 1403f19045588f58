"""What jobs/prepare.py reads: the data of a run and nothing else."""

from dataclasses import dataclass, field

from ringshard.config.schema.data import Data
from ringshard.config.schema.job import User


@dataclass
class Root:
    """Where the data go."""

    root: str = "outputs"
    """Folder of all runs and of the token stores, the same as of the runs that will read them."""


@dataclass
class PrepareJob:
    """One preparation."""

    data: Data = field(default_factory=Data)
    output: Root = field(default_factory=Root)
    user: User = field(default_factory=User)
