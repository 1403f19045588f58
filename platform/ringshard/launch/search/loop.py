"""The work of a search: asks for trials, starts their runs, follows their metric, tells the study.

What it knows is on disk before it acts, so that whoever is next goes on where a killed search was:
a trial is noted before its run begins, and a run that goes on without its search is taken over.
"""

import math
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

from ringshard.child import ChildError
from ringshard.config.schema.launcher import OnFailure
from ringshard.errors import ConfigError
from ringshard.launch.housekeeping import NotCancelledError, cancel
from ringshard.launch.identity import Run
from ringshard.launch.progress import Follower, last_value
from ringshard.launch.rundir import RunDir, RunningError
from ringshard.launch.search.places import Place
from ringshard.launch.search.plan import Plan
from ringshard.launch.search.study import Study, Trial
from ringshard.launch.state import PRUNED, State
from ringshard.launch.stop import StopRequests
from ringshard.launch.table import reason

TICK_S = 0.5
_BEGINS = (State.new, State.killed, State.interrupted)
"""Where a run of a trial that has no result stands for it to be started (again)."""


@dataclass
class _Active:
    """A trial whose run is at work."""

    trial: Trial
    run: Run
    metric: Follower


class Loop:
    """One search, for as long as this process is at it."""

    def __init__(self, plan: Plan, study: Study, place: Place) -> None:
        self._plan, self._study, self._place = plan, study, place
        self.runs: list[Run] = []
        """All that this process has looked after."""
        self._active: list[_Active] = []
        self._stopped: set[RunDir] = set()
        """Runs that were asked to end early; several trials may share one."""
        self._stop = StopRequests()
        self._told = 0
        """Stop requests that were handed on."""
        self._closed = False
        """Whether no further trial begins."""

    def run(self, stop: StopRequests) -> None:
        """Goes on until all trials have ended, or it is asked to stop: runs here end with it, also
        where it fails."""
        self._stop = stop
        try:
            self._search(stop)
        except BaseException:
            self._end_runs(stop)
            raise

    def _search(self, stop: StopRequests) -> None:
        self._place.look()
        for trial in self._study.trials():
            if trial.state == "running":
                self._begin(trial)
        while self._go_on(stop):
            self._place.look()
            self._active = [one for one in self._active if not self._ended(one, stop)]
            while not stop and self._has_room():
                self._begin(self._study.ask())
            self._hand_on(stop)
            if self._active:
                time.sleep(TICK_S)

    def _end_runs(self, stop: StopRequests) -> None:
        """Waits until they have saved."""
        if not stop:
            stop.remember(signal.SIGTERM, None)
        while self._place.waits_for_runs and self._at_work():
            self._hand_on(stop)
            time.sleep(TICK_S)

    def _at_work(self) -> set[RunDir]:
        return {one.run.dir for one in self._active if self._place.state(one.run.dir).lives}

    def _hand_on(self, stop: StopRequests) -> None:
        """Each request goes to a run once, however many trials share it; the first is none to a
        run that was stopped early, which would take it for a second one."""
        for index in range(self._told, len(stop.came)):
            asked = set() if index else self._stopped
            for run in self._at_work() - asked:
                self._place.interrupt(run, stop.came[index][0])
        self._told = len(stop.came)

    def _go_on(self, stop: StopRequests) -> bool:
        if stop:
            return bool(self._active) and self._place.waits_for_runs
        return bool(self._active) or self._has_room()

    def _has_room(self) -> bool:
        parallel = self._plan.policy.launcher.max_parallel or 1
        asked = len(self._study.trials()) < self._plan.policy.search.trials
        return asked and not self._closed and len(self._active) < parallel

    def _begin(self, trial: Trial) -> None:
        """A trial whose job or data are not valid has failed; where no job can be started at all,
        the search ends, and the trial is for the next one."""
        try:
            run = self._found(trial) or self._plan.run(trial.point)
            self._study.note(trial, run=run.dir.path.name)
            begins = self._place.state(run.dir) in _BEGINS
            self._say(trial, " ".join(self._plan.space.overrides(trial.point)))
            if begins:
                self._place.prepare(run)
        except (ConfigError, ChildError) as problem:
            if not self._stop:  # else Ctrl-C has ended what was asked
                self._fail(trial, str(problem))
            return
        follower = Follower(run.dir.path, self._plan.metric, self._study.reported(trial))
        if begins:
            with suppress(RunningError):  # somebody else has begun it
                self._place.start(run)
        self._active.append(_Active(trial, run, follower))
        self.runs.append(run)

    def _found(self, trial: Trial) -> Run | None:
        """The run that an earlier process began for a trial, as it was frozen then."""
        if "run" not in trial.facts:
            return None
        here = RunDir(self._plan.folder / trial.facts["run"])
        attempt = here.last_attempt()
        if not attempt or not here.record.exists():
            return None
        signature = here.about().signature
        overrides = here.overrides(attempt)
        return Run(here.job(attempt), overrides, signature, self._plan.name, here, after=attempt)

    def _ended(self, one: _Active, stop: StopRequests) -> bool:
        stands = self._place.state(one.run.dir)
        self._follow(one, stands)  # the last values of one that has ended too: others are compared
        if stands.lives:
            return False
        if not (stop and stands in _BEGINS):  # what was stopped here goes on with the next command
            self._tell(one, stands)
        return True

    def _follow(self, one: _Active, stands: State) -> None:
        """Reports what is new, and stops a run that is worse than others were or has diverged."""
        for step, value in one.metric.new():
            self._study.report(one.trial, step, value)
            ends = not stands.lives or step == one.run.job.train.steps
            if ends or one.run.dir in self._stopped:
                continue
            if reason := self._study.hopeless(one.trial):
                told = f"{self._plan.metric}={value:.6g} at step {step}"
                self._stop_early(one, stands, f"{PRUNED}: {told} {reason}")

    def _stop_early(self, one: _Active, stands: State, why: str) -> None:
        """Where that can't be done now, the next value may try again."""
        try:
            cancel(one.run.dir, stands, why)
            self._stopped.add(one.run.dir)
        except NotCancelledError as problem:
            self._say(one.trial, f"{why}, but {problem}")

    def _tell(self, one: _Active, stands: State) -> None:
        metric, trial = self._plan.metric, one.trial
        if stands is State.pruned:
            self._study.tell(trial, "pruned")
            self._say(trial, reason(one.run.dir, stands, None))
            return
        if stands is not State.done:
            self._fail(trial, reason(one.run.dir, stands, None) or stands.value)
            return
        value = last_value(one.run.dir.path, metric)
        if value is None:
            self._fail(trial, f"launcher.metric={metric} was never recorded, name another one")
        elif not math.isfinite(value):
            self._fail(trial, f"{metric}={value} is not finite")
        else:
            self._study.tell(trial, "complete", value)
            self._say(trial, f"done, {metric}={value:.6g}")

    def _fail(self, trial: Trial, why: str) -> None:
        self._study.note(trial, why=why)
        self._study.tell(trial, "fail")
        self._say(trial, f"failed: {why}")
        self._closed |= self._plan.policy.launcher.on_failure is OnFailure.stop

    def _say(self, trial: Trial, text: str) -> None:
        total = self._plan.policy.search.trials
        print(f"[{trial.number + 1}/{total}] {text}", flush=True)
