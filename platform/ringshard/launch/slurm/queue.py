"""What Slurm says of jobs: through its commands, with named fields and never as JSON."""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from ringshard.launch.environment import slurm_environment

_PATIENCE_S = 30


class SlurmError(Exception):
    """A command of Slurm is not there, failed, or did not answer; `str()` is what it said."""

    @property
    def sentence(self) -> str:
        """For the user of a command that can't go on without."""
        return f"Slurm does not answer as it should ({self}): give the command again later"


@dataclass(frozen=True)
class Queued:
    """A job that has not ended, or one task of an array."""

    job_id: str
    """As in 12, or 12_3 for a task of an array."""
    state: str
    """As in PENDING or RUNNING."""
    reason: str
    """Why it waits."""
    name: str
    """The last, for it may hold any character."""

    @property
    def waits(self) -> bool:
        """Whether it has not begun, or has been queued again."""
        return self.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")


def call(*command: str) -> str:
    """What a command of Slurm prints; raises SlurmError."""
    try:
        done = subprocess.run(
            command, env=slurm_environment(), capture_output=True, text=True, timeout=_PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"{command[0]}: {error}") from error
    if done.returncode:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise SlurmError(f"{command[0]}: {said.splitlines()[-1]}")
    return done.stdout


def read_queue() -> dict[str, Queued]:
    """The user's jobs that have not ended, by id; raises SlurmError."""
    lines = call("squeue", "--me", "-h", "-r", "-o", "%i|%T|%r|%j").splitlines()
    facts = (line.split("|", 3) for line in lines if "|" in line)  # not the name of a cluster
    return {job.job_id: job for job in (Queued(*told) for told in facts)}


def facts(job_id: str) -> dict[str, str]:
    """What scontrol knows of a job, by name; raises SlurmError."""
    return _named(call("scontrol", "show", "job", "-o", job_id))


def setting(name: str, default: str) -> str:
    """A line of `scontrol show config`, or the default where it does not answer."""
    found = re.search(rf"^{name}\s*= (.*)$", _config(), re.MULTILINE)
    return found[1].strip() if found else default


@cache
def _config() -> str:
    """Asked for once; empty where nobody answers."""
    try:
        return call("scontrol", "show", "config")
    except SlurmError:
        return ""


def number(name: str, default: int) -> int:
    """The same for a number, without its unit."""
    found = re.match(r"\d+", setting(name, str(default)))
    return int(found[0]) if found else default


def requeue(job_id: str) -> None:
    """Ends a job and queues it again; raises SlurmError."""
    call("scontrol", "requeue", job_id)


def cancel(job_ids: Iterable[str]) -> None:
    """Ends jobs for good; raises SlurmError."""
    ids = list(job_ids)
    for begin in range(0, len(ids), 500):  # a command line has an end
        call("scancel", *ids[begin : begin + 500])


def ended(job_ids: Iterable[str]) -> dict[str, str]:
    """The last states that the accounting has of jobs, as in CANCELLED or NODE_FAIL; empty where
    there is none."""
    ids = ",".join(sorted(set(job_ids)))
    if not ids:
        return {}
    try:
        lines = call("sacct", "-X", "-n", "-P", "-j", ids, "-o", "JobID,State").splitlines()
    except SlurmError:
        return {}
    return {line.split("|")[0]: line.split("|")[1].split()[0] for line in lines if "|" in line}


def _named(line: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in line.split())
    return {name: value for name, equals, value in pairs if equals}
