"""The node's side of a job: one agent a node, which starts the ranks and alone answers signals."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import psutil

from ringshard.config.schema.job import Job
from ringshard.config.schema.launcher import Launcher
from ringshard.files import is_listed, read_json, write_json
from ringshard.launch import show, torchrun, tracker
from ringshard.launch.failure import first_failure, has_failed
from ringshard.launch.orphans import adopt_orphans, kill_descendants
from ringshard.launch.rundir import Outcome, RunDir, RunningError
from ringshard.launch.slurm import attempt as attempts
from ringshard.launch.slurm import queue
from ringshard.launch.slurm.limit import Clock, end_of
from ringshard.launch.slurm.node import Node
from ringshard.launch.slurm.request import wait_s
from ringshard.launch.slurm.signals import CHECKPOINT, Noted, Signals, blocked, look_every_s
from ringshard.launch.slurm.verdict import (
    CANCELLED,
    CRASHED,
    PREEMPTED,
    TIMEOUT,
    Verdict,
    judge,
    refuse,
)
from ringshard.launch.stop import StopRequests
from ringshard.launch.tracker import Tracker

FIRST_STEP = "first-step.json"
"""Of an attempt, once rank 0 has made a step."""
_TICK_S = 0.05
_IDLE_S = 0.3
"""How long torchrun may be without ranks once a stop was asked for: then all is saved."""
_PEERS_S = {True: 5.0, False: 10.0}
"""How long the first node waits for the others' last words: where it was asked to stop, or not."""
_REQUEUED, _CANCELLED = 75, 143
"""Exit codes; neither leaves a result for submitit, which would take the job for finished."""


@dataclass
class Agent:
    """One attempt on one node."""

    run: RunDir
    first: int
    """The attempt that was submitted."""
    module: str
    lead_s: int
    """How long before the time limit Slurm sends its signal, as was asked at submission [s]."""
    kill_wait_s: int
    """How long Slurm waits between SIGTERM and SIGKILL [s]."""
    node: Node = field(default_factory=Node.here)
    signals: Signals = field(default_factory=Signals)

    def work(self) -> None:
        """Runs the attempt; returns if it is done, raises if it failed, exits otherwise."""
        self.signals.collect()
        adopt_orphans()
        with _claimed(self.run) if self.node.is_first else nullcontext():
            number = attempts.enter(self.run, self.first, self.node, self.lead_s)
            try:
                self._attempt(number)
            except Exception as error:
                if self.node.is_first and not (self.run.attempt(number) / "exit.json").exists():
                    self._finish(number, Verdict(Outcome.failed, f"the agent failed: {error}"), 1)
                raise

    def _attempt(self, number: int) -> None:
        folder = self.run.attempt(number)
        job = self.run.job(number)
        noted = Noted(folder / "nodes", self.node.index, len(self.node.hosts), self.signals)
        if self.node.is_first:
            self._refuse(number, job.launcher)
        with attempts.output_to(folder / f"node-{self.node.index}.log"):
            tracking = tracker.start(job, self.run.path, number, self.node.index, on_cluster=True)
            code = self._ranks(job, number, noted, tracking)
            if self.node.is_first:
                self._end(number, job, code, noted, tracking)
            else:
                self._follow(folder, code, wait_s(job))

    def _refuse(self, number: int, launcher: Launcher) -> None:
        before = (self.run, self.first, number)
        crashes, in_vain = attempts.crashes(*before), attempts.in_vain(*before)
        if refused := refuse(crashes, in_vain, launcher):
            self._finish(number, refused, 1)
            raise RuntimeError(refused.why)

    def _ranks(self, job: Job, number: int, noted: Noted, tracking: Tracker) -> int:
        """Starts torchrun and waits for its end, which a signal brings about; no rank outlives it.

        Only once it runs may a signal that came early arrive here; torchrun never gets any.
        """
        meeting = self.node.meeting(job.launcher.max_restarts)
        with blocked():
            ranks = torchrun.start(job, self.run.path, number, self.module, meeting)
        lead_s = attempts.lead_s(self.run, number)
        is_late = self.node.is_first and lead_s > self.lead_s
        folder, patience = self.run.attempt(number), patience_s(lead_s, self.kill_wait_s)
        clock = Clock(self.node.job_id, lead_s, folder / FIRST_STEP) if is_late else None
        watch = _Watch(ranks, folder, noted, patience, self.node)
        while ranks.poll() is None:
            if clock and clock.rings():
                print(f"saving takes long: {lead_s} s before the time limit, Slurm is not awaited")
                self.signals.note(CHECKPOINT)
            watch.look()
            time.sleep(_TICK_S)
        kill_descendants(spared=tracking.spared)
        return ranks.returncode

    def _end(self, number: int, job: Job, code: int, noted: Noted, tracking: Tracker) -> None:
        """The first node judges the attempt, tells all, and does what follows from it."""
        reason, came_to = self._reason(noted, number), self.run.result(number).get("outcome")
        if reason is None and came_to == "stopped" and code == 0:  # a rank alone was signalled
            reason = PREEMPTED
        self._wait_for_peers(number, _PEERS_S[reason is not None])
        finished = came_to == "finished" and code == 0
        past = attempts.past(self.run, self.first, number, reason)
        verdict = judge(reason, finished, past, job.launcher)
        self._finish(number, verdict, code)
        patience = job.tracking.flush_timeout_s if reason is None else 2.0
        if not tracking.end(patience, StopRequests()):
            print(show.unsent(self.run), flush=True)
        if verdict.outcome is Outcome.requeued:
            self._queue_again(number, verdict, code)
        self._leave(verdict.outcome, self.run.attempt(number))

    def _follow(self, folder: Path, code: int, patience_s: float) -> None:
        """Another node waits for the word of the first one and does the same."""
        write_json(folder / "nodes" / f"exit-{self.node.index}.json", {"ranks_rc": code})
        end = attempts.exit_of(folder, 60.0, len(self.node.hosts))
        outcome = attempts.outcome_of(end) or Outcome.failed
        if outcome in (Outcome.requeued, Outcome.failed):  # the first node may have points to ship
            _await_term(self.signals, len(self.signals.came), patience_s)
        self._leave(outcome, folder)

    def _reason(self, noted: Noted, number: int) -> str | None:
        """Why this attempt was asked to stop."""
        first = noted.first()
        if first is None:
            return None
        if first[0] != CHECKPOINT:
            return CANCELLED
        return TIMEOUT if self._at_time_limit(attempts.lead_s(self.run, number)) else PREEMPTED

    def _at_time_limit(self, lead_s: int) -> bool:
        """Slurm sends one and the same signal for both; a preempted job has a PreemptTime."""
        try:
            facts = queue.facts(self.node.job_id)
        except queue.SlurmError:
            return False
        if facts.get("PreemptTime", "None") not in ("None", "Unknown", "N/A"):
            return False
        end = end_of(facts)
        # Slurm signals up to a minute early.
        return end is not None and end - time.time() < lead_s + 90

    def _wait_for_peers(self, number: int, patience_s: float) -> None:
        """A node that leaves before the others have written would have them killed by srun."""
        folder, until = self.run.attempt(number) / "nodes", time.monotonic() + patience_s
        while time.monotonic() < until:
            if len(list(folder.glob("exit-*.json"))) >= len(self.node.hosts) - 1:
                return
            time.sleep(_TICK_S)

    def _finish(self, number: int, verdict: Verdict, code: int) -> None:
        came = [name for name, _ in self.signals.came]
        why = (self.run.why_stopped(number) if verdict.why == CANCELLED else None) or verdict.why
        details = {"why": why, "signals": came, "ranks_rc": code, "time": time.time()}
        folder, failed = self.run.attempt(number), verdict.outcome is Outcome.failed
        if failed and (why == CRASHED or has_failed(folder)):
            message = first_failure(folder).message
            details["error"] = message if why == CRASHED else f"{why}: {message}"
        self.run.finish(number, verdict.outcome, details | {"step": self.run.newest_step()})

    def _queue_again(self, number: int, verdict: Verdict, code: int) -> None:
        """Asks Slurm, and waits for the end that it brings."""
        before = len(self.signals.came)  # Slurm's TERM may come before scontrol returns
        try:
            queue.requeue(self.node.job_id)
        except queue.SlurmError as error:
            stopped = Outcome.failed if verdict.why == CRASHED else Outcome.killed
            why = f"{verdict.why}, and can't be queued again ({error})"
            self._finish(number, Verdict(stopped, why), code)
            raise RuntimeError(why) from error
        _await_term(self.signals, before)

    def _leave(self, outcome: Outcome, folder: Path) -> None:
        """Ends as the outcome demands; Slurm's state of the job is to be the truth."""
        if outcome is Outcome.done:
            return
        if outcome is Outcome.failed:
            end = read_json(folder / "exit.json") or {}
            raise RuntimeError(str(end.get("error") or end.get("why") or "another node failed"))
        _exit(_REQUEUED if outcome is Outcome.requeued else _CANCELLED)


def patience_s(lead_s: int, kill_wait_s: int) -> dict[str, float]:
    """How long ranks may take to save, by what they were asked with: Slurm kills all after its
    KillWait, and at the time limit, and the last word is still to be written [s]."""
    return {CHECKPOINT: max(5.0, lead_s - 10.0), "SIGTERM": max(1.0, 0.75 * kill_wait_s)}


class _Watch:
    """The loop's eye on torchrun: signals of all nodes, failures of others, deadlines."""

    def __init__(
        self,
        ranks: "subprocess.Popen[bytes]",
        folder: Path,
        noted: Noted,
        patience: dict[str, float],
        node: Node,
    ) -> None:
        self._ranks, self._folder, self._noted, self._node = ranks, folder, noted, node
        self._every_s, self._next = look_every_s(len(node.hosts)), 0.0
        self._told: set[int] = set()
        self._stepped = False
        self._idle_since: float | None = None
        self._patience_s = patience

    def look(self) -> None:
        """Once a tick."""
        first = self._noted.first()
        if first is None:
            if time.monotonic() > self._next:
                self._next = time.monotonic() + self._every_s
                if self._failed_elsewhere():
                    self._ranks.kill()
            return
        name, came = first
        torchrun.tell_ranks(self._ranks, self._told)
        late = time.time() - came > self._patience_s[name]
        self._stepped = self._stepped or (self._folder / FIRST_STEP).exists()
        if late or not self._stepped or self._idle():  # before the first step nothing is saved
            self._ranks.kill()

    def _failed_elsewhere(self) -> bool:
        """Another node has given up: torchrun would wait for it at the next meeting."""
        if self._node.is_first:
            words = [read_json(f) for f in (self._folder / "nodes").glob("exit-*.json")]
            return any(word and word["ranks_rc"] for word in words) and self._idle()
        return is_listed(self._folder / "exit.json")

    def _idle(self) -> bool:
        """Whether torchrun has had no ranks for a while."""
        try:
            busy = bool(torchrun.ranks_of(self._ranks))
        except psutil.NoSuchProcess:
            return False
        now = time.monotonic()
        self._idle_since = None if busy else self._idle_since or now
        return self._idle_since is not None and now - self._idle_since > _IDLE_S


@contextmanager
def _claimed(run: RunDir, patience_s: float = 120.0) -> Iterator[None]:
    """Holds the run; a node that died may seem to do so for a while, on some file systems."""
    until = time.monotonic() + patience_s
    while True:
        try:
            with run.claimed():
                yield
                return
        except RunningError:
            if time.monotonic() > until:
                raise
            time.sleep(1)


def _await_term(signals: Signals, before: int, patience_s: float = 30.0) -> None:
    until = time.monotonic() + patience_s
    while len(signals.came) == before and time.monotonic() < until:
        time.sleep(_TICK_S)


def _exit(code: int) -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    sys.stdout.flush()
    sys.exit(code)
