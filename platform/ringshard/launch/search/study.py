"""What a search has tried and learnt, on disk; the only module that knows Optuna.

`search.journal` of the sweep's folder is Optuna's journal. One process at a time works on it,
which `search.lock` sees to, so that Optuna's own lock, which outlives a killed process, is not
needed.
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from filelock import FileLock, Timeout

from ringshard.config.schema.search import Pruner, Sampler, Search
from ringshard.config.space import Choice, Dimension, Interval, Space, Steps, Value
from ringshard.errors import ConfigError

if TYPE_CHECKING:
    import optuna

JOURNAL = "search.journal"


@dataclass(frozen=True)
class Trial:
    """A point of the space, and what came out of it."""

    number: int
    point: dict[str, Value]
    value: float | None
    """The result; None where the trial is not complete, whatever it recorded on the way."""
    state: str
    """running, complete, pruned or fail."""
    facts: dict[str, Any]
    """run: the name of its folder; why: what went wrong."""


def require_optuna(search: Search) -> None:
    """Raises ConfigError where Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"search.sampler={search.sampler.name} needs Optuna, which is not installed:"
            " pip install 'ringshard[search]'"
        ) from error


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Holds a search for this process; raises ConfigError where another one is at work on it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / "search.lock", timeout=0):
            yield
    except Timeout:
        raise ConfigError(f"{folder} is being searched: wait for its end, or stop it") from None


class Study:
    """Trials are asked for, told of, and found again by whoever opens the study next."""

    def __init__(
        self, folder: Path | None, space: Space, search: Search, minimize: bool = True
    ) -> None:
        """folder: of the search, held by this process; None: in memory alone."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._search = search
        self._distributions = {one.key: _distribution(one) for one in space.dimensions}
        storage = _storage(folder) if folder else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the journal is called experimental
            self._study = optuna.create_study(
                study_name="search",
                storage=storage,
                direction="minimize" if minimize else "maximize",
                load_if_exists=True,
            )

    def trials(self) -> list[Trial]:
        """All of them that have a point, the oldest first: one whose process died while it was
        asked for has none."""
        found = self._study.get_trials(deepcopy=False)
        return [_trial(each) for each in found if set(each.params) == set(self._distributions)]

    def ask(self) -> Trial:
        """A new trial. Its values follow from seed, number and what was told before, so that a
        search that was stopped in between goes on as if it had not been."""
        number = len(self._study.get_trials(deepcopy=False))
        self._study.sampler = _sampler(self._search, number)
        asked = self._study.ask(fixed_distributions=self._distributions)
        return Trial(asked.number, dict(asked.params), None, "running", {})

    def note(self, trial: Trial, **facts: Any) -> None:
        """Adds facts to a trial."""
        for name, fact in facts.items():
            self._open(trial).set_user_attr(name, fact)

    def report(self, trial: Trial, step: int, value: float) -> None:
        """A result on the way."""
        self._open(trial).report(value, step)

    def reported(self, trial: Trial) -> int:
        """The last step that a result was reported of; -1: none was."""
        return max(
            self._study.get_trials(deepcopy=False)[trial.number].intermediate_values, default=-1
        )

    def hopeless(self, trial: Trial) -> str:
        """Why the trial is to be stopped early, as what was reported last ends; empty: it is not.

        Optuna forgives a trial that has diverged after a good value: it compares the best one.
        """
        if self._search.pruner is Pruner.none:
            return ""
        import optuna

        reported = self._study.get_trials(deepcopy=False)[trial.number].intermediate_values
        step = max(reported)
        if step >= self._search.pruner_step and not math.isfinite(reported[step]):
            return "is not finite"

        self._study.pruner = optuna.pruners.MedianPruner(
            self._search.pruner_trials, self._search.pruner_step
        )
        worse = self._open(trial).should_prune()
        return "and all before it are worse than the median of the done trials" if worse else ""

    def tell(self, trial: Trial, state: str, value: float | None = None) -> None:
        """Ends a trial: complete with its value, pruned, or fail."""
        from optuna.trial import TrialState

        self._study.tell(trial.number, value, state=TrialState[state.upper()])

    def _open(self, trial: Trial) -> "optuna.trial.Trial":
        import optuna

        frozen = self._study.get_trials(deepcopy=False)[trial.number]
        return optuna.trial.Trial(self._study, frozen._trial_id)


def _storage(folder: Path) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    _mend(folder / JOURNAL)
    return JournalStorage(JournalFileBackend(str(folder / JOURNAL), cast(Any, _Held())))


class _Held:
    """In place of Optuna's lock: whoever opens the journal holds the search."""

    def acquire(self) -> bool:
        """Nobody else is there."""
        return True

    def release(self) -> None:
        """The search is held on."""


def _mend(journal: Path) -> None:
    """Takes back the last line of a journal if its writer was killed within it."""
    if journal.exists():
        whole = journal.read_bytes()
        with journal.open("r+b") as file:
            file.truncate(whole.rfind(b"\n") + 1)


def _sampler(search: Search, number: int) -> "optuna.samplers.BaseSampler":
    import optuna

    seed = (search.seed * 1_000_003 + number) % 2**32
    if search.sampler is Sampler.random:
        return optuna.samplers.RandomSampler(seed)
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=search.startup_trials)


def _distribution(one: Dimension) -> "optuna.distributions.BaseDistribution":
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if isinstance(one, Interval):
        kind = IntDistribution if one.integer else FloatDistribution
        return kind(one.low, one.high, log=one.log)  # type: ignore[arg-type]  # int with int
    if isinstance(one, Steps):
        return IntDistribution(0, len(one.values) - 1)
    assert isinstance(one, Choice)
    return CategoricalDistribution(one.values)


def _trial(frozen: "optuna.trial.FrozenTrial") -> Trial:
    state = frozen.state.name.lower()
    value = frozen.values[0] if state == "complete" and frozen.values else None
    return Trial(frozen.number, dict(frozen.params), value, state, dict(frozen.user_attrs))
