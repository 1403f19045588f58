"""What submitit pickles: a job's run directory, and where in it to begin."""

from dataclasses import dataclass
from pathlib import Path

from ringshard.launch.rundir import RunDir


@dataclass(frozen=True)
class Task:
    """Called on each node of the job."""

    run_dir: str
    attempt: int
    """The attempt that is submitted."""
    module: str
    """What the ranks run."""
    lead_s: int
    """How long before its time limit the job is told [s]."""
    kill_wait_s: int
    """How long Slurm lets a cancelled job go on; told here, for a thousand nodes that would ask for
    it at once are a burden [s]."""

    def __call__(self) -> None:
        """See Agent."""
        from ringshard.launch.slurm.agent import Agent

        run = RunDir(Path(self.run_dir))
        Agent(run, self.attempt, self.module, self.lead_s, self.kill_wait_s).work()
