"""One run on its way to MLflow: what has been acknowledged stands in `track/shipped.json`."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import NamedTuple

from ringshard.config.schema.checkpoint import Checkpoint
from ringshard.errors import ConfigError, first_line
from ringshard.files import read_json, sync
from ringshard.launch.rundir import RunDir
from ringshard.launch.state import Queue, ask_queue
from ringshard.tracking import models, names
from ringshard.tracking.attachments import attachments, readable
from ringshard.tracking.batches import Point, batches
from ringshard.tracking.ledger import Ledger
from ringshard.tracking.remote import RemoteRun
from ringshard.tracking.repeats import Repeats, must_be_same
from ringshard.tracking.spool import SpoolFile, node_writer, spools
from ringshard.tracking.standing import Standing, clock, standing
from ringshard.tracking.unrecorded import unrecorded

_BATCH = 1000
"""Most points that MLflow takes in a request."""
_HEARTBEAT_S = 60.0
"""How often MLflow is told that the run is still at work."""


class Shipped(NamedTuple):
    """What MLflow knows of a run, once all that is there has arrived."""

    status: str
    lost: int
    """Lines that can never arrive."""
    refused: tuple[str, ...] = ()
    """Files or models that could not be kept, and why; tried again by the next sync."""


class Shipper:
    """One run directory on its way to one MLflow experiment."""

    def __init__(self, run_dir: Path, attempt: int, uri: str, experiment: str) -> None:
        """`attempt` is the newest one: it decides the status."""
        self._run_dir, self._attempt = run_dir, attempt
        self._ledger = Ledger.read(run_dir, uri, experiment)
        self._remote: RemoteRun | None = None
        self._spools: list[SpoolFile] = []
        self._repeats: dict[str, Repeats] = {}
        self._next_beat = -math.inf
        self._attached: set[int] = set()
        self._refused: tuple[str, ...] = ()

    @property
    def exit_file(self) -> Path:
        """Appears when the attempt is over, written after the last point."""
        return self._folder(self._attempt) / "exit.json"

    @property
    def has_other_nodes(self) -> bool:
        """Whether other machines write spools."""
        return any(spool.writer not in ("rank0", node_writer(0)) for spool in self._spools)

    def _folder(self, attempt: int) -> Path:
        return self._run_dir / "attempts" / str(attempt)

    def standing(self, queue: Callable[[], Queue] = ask_queue) -> Standing:
        """Where the attempt stands."""
        return standing(RunDir(self._run_dir), self._attempt, queue)

    def ship(self, stands: Standing, queue: Callable[[], Queue] = ask_queue) -> Shipped:
        """Send all that is there, and how the attempt ended if it is over.

        stands: looked at before, since no point is written after exit.json. Raises what the MLflow
        client raises; what was acknowledged before that is not sent again.
        """
        remote = self._open()
        if not stands.is_over:
            self._tell(remote, stands, queue)
        for attempt in range(1, self._attempt + 1):
            self._describe(remote, attempt)
        for spool in self._history():
            self._drain(remote, spool)
        if stands.is_over:
            self._note_unrecorded(remote)
            self._tell(remote, stands, queue)
        if stands.is_over or not self._refused:
            self._add(remote, stands.is_final)
        return Shipped(stands.status, self._ledger.lost, self._refused)

    def _note_unrecorded(self, remote: RemoteRun) -> None:
        """Tell of steps that the spools cannot tell of."""
        missing = unrecorded(RunDir(self._run_dir))
        if missing != self._ledger.unrecorded:
            known = replace(self._ledger, unrecorded=missing)
            remote.log([], known.warnings)
            self._note(known)

    def _add(self, remote: RemoteRun, is_final: bool) -> None:
        """Send files, which may have a store of their own, and models; neither holds up points."""
        refused: list[str] = []
        sends: dict[str, Callable[[], None]] = {
            "files": partial(self._attach_all, remote),
            "models": partial(self._note_models, remote, is_final),
        }
        for what, send in sends.items():
            try:
                send()
            except Exception as error:
                refused.append(f"{what} ({first_line(error)})")
        if (news := tuple(refused)) != self._refused:
            self._refused = news
            print(f"MLflow refuses: {', '.join(news) or 'nothing any more'}", flush=True)

    def _attach_all(self, remote: RemoteRun) -> None:
        for attempt in range(1, self._attempt + 1):
            self._attach(remote, attempt)

    def status_in_mlflow(self) -> str:
        """What MLflow says of the run; if somebody else has set it, it will be told anew."""
        status = self._open().status()
        if f": {status}," not in self._ledger.told:
            self._ledger = replace(self._ledger, told="")
        return status

    def _open(self) -> RemoteRun:
        if self._remote is None:
            known = self._ledger
            remote = RemoteRun(known.uri, known.experiment, self._run_dir, known.run_id)
            if remote.run_id != known.run_id:
                self._note(Ledger(known.uri, known.experiment, remote.run_id))
            self._remote = remote
        return self._remote

    def _tell(self, remote: RemoteRun, stands: Standing, queue: Callable[[], Queue]) -> None:
        """Tell MLflow where the run stands, where that is news, and once a minute that it lives."""
        told = f"attempt {self._attempt}: {stands.status}, {stands.state}"
        beats = not stands.is_over and time.monotonic() > self._next_beat
        if told == self._ledger.told and not beats:
            return
        ended = self._tell_end(remote) if stands.is_final else None
        tags = {"state": stands.state, "attempt": str(self._attempt)}
        if not stands.is_over:
            tags["heartbeat"] = clock(time.time())
            self._next_beat = time.monotonic() + _HEARTBEAT_S
        remote.tell(stands.status, tags, ended)
        if told != self._ledger.told and (sweep := names.sweep(self._run_dir)):
            remote.tell_parent(sweep, queue)
        self._note(replace(self._ledger, told=told))

    def _tell_end(self, remote: RemoteRun) -> float:
        """Tell where the time of a run went that is over; since when it is [s]."""
        from ringshard.report.history import tracked  # Arrow takes half a second

        last_sign = 0.0
        try:
            time_ms, step, metrics = tracked(RunDir(self._run_dir))
        except ConfigError as error:  # the status is told all the same
            print(f"where the time went is not known: {error}", flush=True)
        else:
            remote.log([Point(key, value, time_ms, step) for key, value in metrics.items()], {})
            last_sign = time_ms / 1000
        told = (read_json(self.exit_file) or {}).get("time")
        return float(told or last_sign or names.created(self._run_dir))

    def _describe(self, remote: RemoteRun, attempt: int) -> None:
        if attempt in self._ledger.described or not (self._folder(attempt) / "job.yaml").exists():
            return
        run = RunDir(self._run_dir)
        job, overrides = run.job(attempt), run.overrides(attempt)
        remote.describe(attempt, names.parameters(job, overrides), names.job_tags(job, overrides))
        self._note(replace(self._ledger, described=[*self._ledger.described, attempt]))

    def _attach(self, remote: RemoteRun, attempt: int) -> None:
        """Send the files of an attempt; all are there, and complete, when it has begun."""
        if attempt in self._attached or not (self._folder(attempt) / "started.json").exists():
            return
        for file in attachments(self._folder(attempt)):
            name = f"attempts/{attempt}/{file.name}"
            if name not in self._ledger.attached:
                remote.attach(name, readable(file))
                self._note(replace(self._ledger, attached=[*self._ledger.attached, name]))
        self._attached.add(attempt)

    @cached_property
    def _policy(self) -> Checkpoint:
        return RunDir(self._run_dir).job(self._attempt).checkpoint

    def _note_models(self, remote: RemoteRun, is_final: bool) -> None:
        """Tell of the checkpoints that stay, and take back those that are gone."""
        known = self._ledger.models
        staying = models.staying(self._run_dir, self._policy, is_final)
        new = {step: path for step, path in staying.items() if path.name not in known}
        for model in models.described(new, self._history()):
            known = known | {model.name: remote.add_model(model)}
            self._note(replace(self._ledger, models=known))
        for name in [n for n in known if not (self._run_dir / "checkpoints" / n).exists()]:
            remote.remove_model(known[name])
            known = {n: made for n, made in known.items() if n != name}
            self._note(replace(self._ledger, models=known))

    def _history(self) -> list[SpoolFile]:
        listed = set((self._run_dir / "track").glob("spool-*.jsonl"))
        if listed != {spool.path for spool in self._spools}:
            self._spools = spools(self._run_dir)
            is_same = cache(partial(must_be_same, RunDir(self._run_dir)))
            self._repeats = {
                spool.path.name: Repeats(spool, spool.among(self._spools), is_same)
                for spool in self._spools
            }
        return self._spools

    def _drain(self, remote: RemoteRun, spool: SpoolFile) -> None:
        name = spool.path.name
        for batch in batches(spool, self._ledger.offsets.get(name, 0), _BATCH, self._repeats[name]):
            arrived = self._ledger.after(name, batch)
            with suppress(OSError):  # what a disk loses would be recorded anew, and sent twice
                sync(spool.path)
            remote.log(batch.points, arrived.warnings)
            self._note(arrived)
            for step in batch.mismatches:
                print(f"{name}: step {step} was trained again and came out otherwise", flush=True)

    def _note(self, ledger: Ledger) -> None:
        """Write down what MLflow has just acknowledged."""
        self._ledger = ledger
        ledger.write(self._run_dir)
