"""This node's place in a job, as Slurm's environment tells it."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from submitit.slurm.slurm import _parse_node_list

from ringshard.launch.torchrun import ALONE, Meeting


@dataclass(frozen=True)
class Node:
    """One node of a job; the first one speaks for it."""

    job_id: str
    """Of the job, or of this task of an array, a number of its own."""
    restart: int
    """How often Slurm has queued the job again."""
    index: int
    hosts: list[str]

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> "Node":
        """The node that this process is on."""
        return cls(
            environment["SLURM_JOB_ID"],
            int(environment.get("SLURM_RESTART_COUNT", 0)),
            int(environment.get("SLURM_NODEID", 0)),
            # Never a fallback to localhost: every node would make a world of its own.
            _parse_node_list(environment["SLURM_JOB_NODELIST"]),
        )

    @property
    def is_first(self) -> bool:
        """Whether this node speaks for the job."""
        return self.index == 0

    def meeting(self, max_restarts: int) -> Meeting:
        """How the torchruns of the job meet.

        The port lies below those that the kernel gives away, and differs between jobs that may
        share a node.
        """
        name = f"{self.job_id}-{self.restart}"
        if len(self.hosts) == 1:
            return Meeting(ALONE.endpoint, name, 0, max_restarts)
        port = 20000 + int(self.job_id) % 10000
        return Meeting(f"{self.hosts[0]}:{port}", name, self.index, max_restarts)

    def record(self) -> dict[str, object]:
        """What started.json says of the job."""
        host = socket.gethostname()
        return {"host": host, "job": self.job_id, "restart": self.restart, "hosts": self.hosts}
