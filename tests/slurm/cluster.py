"""A real Slurm of four nodes on this machine, and commands given to it as a user gives them."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra/slurm"
MODEL = (
    "model.config={hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, "
    "num_attention_heads: 4, num_key_value_heads: 2}"
)
STEPS = 60
TRAIN = (
    *("data=text_files", "data.path=text.txt", "data.seq_len=64", "data.split=position"),
    *("data.validation_share=0.2", MODEL, "optimizer.lr=3e-3", "tracking=jsonl"),
    *(f"train.steps={STEPS}", "train.log_every=1", "train.eval_every=25"),
    *("train.eval_sequences=4", "checkpoint.every=20", "train.global_batch=8"),
)
TWO = ("hardware=slurm_cpu", "hardware.processes_per_node=1")
"""Two nodes with a process each."""
SLOW = ("user.modules=[slow]", "train.hooks={slow: {until: quick}}")
"""A quarter of a second a step, so that something can happen meanwhile, until `quick` is there."""
_SLOW = """
import threading
import time
from pathlib import Path

from ringshard.registry import register


LOCK = threading.Lock()  # can't be pickled, and need not be


@register("hook", "slow")
class Slow:
    def __init__(self, until, seconds=0.25):
        self.until, self.seconds = Path(until), seconds

    def after_step(self, trainer, last):
        if not self.until.exists():
            time.sleep(self.seconds)
"""


_WRONG = """
from ringshard.registry import register


@register("hook", "wrong")
class Wrong:
    left = 3

    def after_step(self, trainer, last):
        self.left -= 1
        if not self.left:
            raise RuntimeError("the lamp went out")
"""


def environment(**more: str) -> dict[str, str]:
    """Of a user's shell in which another launcher has left something."""
    return {**os.environ, "RANK": "7", "MASTER_PORT": "1", "WORLD_SIZE": "9", **more}


@dataclass(frozen=True)
class Cluster:
    """The cluster that SLURM_CONF names."""

    work: Path

    def slurm(self, *command: str) -> str:
        """What a command of Slurm prints."""
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def jobs(self) -> dict[str, str]:
        """State by id of all jobs that have not ended."""
        lines = self.slurm("squeue", "-h", "-r", "-o", "%i %T").splitlines()
        return {line.split()[0]: line.split()[1] for line in lines}

    def accounted(self, job: str) -> str:
        """The last state that sacct tells, once it does."""
        told: list[str] = []

        def final() -> bool:
            lines = self.slurm("sacct", "-X", "-n", "-P", "-j", job, "-o", "State").splitlines()
            told[:] = lines[-1:]
            return bool(told) and told[0] not in ("RUNNING", "PENDING", "REQUEUED", "COMPLETING")

        until(final, 60, "sacct tells the end")
        return told[0]

    def hurry(self, job: str, *changed: str) -> None:
        """Slurm holds a job that is queued again back for two minutes; changed: what else is to be,
        as in TimeLimit=5."""

        def held() -> bool:
            return self.jobs().get(job) == "PENDING"

        until(held, 60, f"job {job} is queued again")
        time.sleep(1.5)  # a job that begins within the second in which it ended fails
        self.slurm("scontrol", "update", f"JobId={job}", "StartTime=now+1", *changed)

    def up(self) -> None:
        """Brings back what is missing of the cluster."""
        up(self.work)

    def kill(self, name: str) -> None:
        """A power cut, of a node or of a daemon."""
        os.kill(int((self.work / "run" / f"{name}.pid").read_text()), signal.SIGKILL)


@contextmanager
def started() -> Iterator[Cluster]:
    """A cluster in a temporary folder of its own."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        Path(folder).chmod(0o755)  # munged insists
        work = Path(folder) / "c"
        try:
            yield up(work)
        finally:
            down(work)


def up(work: Path) -> Cluster:
    """Starts the cluster, or what is missing of it."""
    script = str(INFRA / "up.sh")
    port = {"SLURM_PORT_BASE": _port(work.parent / "port"), "SLURM_MAX_ARRAY": "16"}
    done = subprocess.run(
        [script, str(work)], capture_output=True, text=True, env=port | os.environ
    )
    assert done.returncode == 0, done.stderr
    os.environ["SLURM_CONF"] = done.stdout.strip().removeprefix("export SLURM_CONF=")
    return Cluster(work)


def _port(noted: Path) -> str:
    """The first of the cluster's ports: the same when it is brought back, another for another."""
    if not noted.exists():
        noted.write_text(str(next(base for base in range(18000, 20000, 200) if _is_free(base))))
    return noted.read_text()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def down(work: Path) -> None:
    """Ends the cluster and removes its folder."""
    subprocess.run([str(INFRA / "down.sh"), str(work), "--purge"], check=True)


def until(true: Callable[[], object], seconds: float, what: str) -> None:
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def project(folder: Path) -> Path:
    """A user's folder: a small text, and a module of their own."""
    folder.mkdir(exist_ok=True)
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
    (folder / "text.txt").write_text(" ".join(random.Random(0).choices(words, k=3000)))
    (folder / "slow.py").write_text(_SLOW)
    (folder / "wrong.py").write_text(_WRONG)
    return folder


def train(folder: Path, *argv: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """jobs/train.py with the small model."""
    command = [sys.executable, str(ROOT / "jobs/train.py"), *TRAIN, *argv]
    return subprocess.run(
        command, cwd=folder, env=environment(**more), capture_output=True, text=True
    )


def submitted(folder: Path, *argv: str) -> "Submitted":
    """The same, submitted; the one run that it made."""
    done = train(folder, *argv)
    assert done.returncode == 0, done.stdout + done.stderr
    newest = max(folder.rglob("run.json"), key=lambda file: file.stat().st_mtime)
    return Submitted(newest.parent)


def ringshard(folder: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    """`ringshard …`"""
    command = [sys.executable, "-m", "ringshard.cli", *argv]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)


@dataclass(frozen=True)
class Submitted:
    """A run on the cluster."""

    path: Path

    @property
    def job(self) -> str:
        """Its id in Slurm."""
        told = self._json(self.path / "attempts/1/submitted.json")
        job = str(self._json(Path(told["submission"]) / "submission.json")["job_id"])
        return job if told["index"] is None else f"{job}_{told['index']}"

    def _json(self, file: Path) -> dict[str, Any]:
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def exit(self, attempt: int = 1) -> dict[str, Any]:
        """exit.json of an attempt; empty as long as there is none."""
        return self._json(self.path / f"attempts/{attempt}/exit.json")

    def ends(self, attempt: int = 1, seconds: float = 240) -> dict[str, Any]:
        """The same, once it is there."""
        until(lambda: self.exit(attempt), seconds, f"{self.path} ends attempt {attempt}")
        return self.exit(attempt)

    def begins(self, attempt: int = 1, seconds: float = 240) -> None:
        """Waits for the first step of an attempt."""
        file = self.path / f"attempts/{attempt}/first-step.json"
        until(file.exists, seconds, f"{self.path} makes a step in attempt {attempt}")

    def starts(self, attempt: int = 1, seconds: float = 120) -> None:
        """Waits for the agent of an attempt."""
        file = self.path / f"attempts/{attempt}/started.json"
        until(file.exists, seconds, f"{self.path} starts attempt {attempt}")


def ranks(run: Submitted) -> list[psutil.Process]:
    """The processes that train it, of all nodes."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "ringshard.train" in words and str(run.path) in words and "--nnodes=2" not in words:
            found.append(process)
    return found
