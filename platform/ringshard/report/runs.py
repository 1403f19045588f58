"""Runs as their directories tell them: configuration, state, curves. No MLflow is asked."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ringshard.errors import ConfigError
from ringshard.files import read_json
from ringshard.launch.rundir import RunDir
from ringshard.launch.state import Queue, ask_queue, state
from ringshard.report import history, record
from ringshard.report.curve import Curve, Floats
from ringshard.report.goodput import Goodput
from ringshard.tracking.unrecorded import unrecorded

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where it was built
"""Of YAML that is plain data."""


@dataclass(frozen=True)
class Run:
    """One run directory, read when asked."""

    dir: RunDir
    queue: Callable[[], Queue] = ask_queue
    """What waits and runs on the cluster."""

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.dir.path.resolve().name

    @property
    def place(self) -> str:
        """Where it is found."""
        return str(self.dir.path)

    @cached_property
    def attempt(self) -> int:
        """The number of its newest attempt."""
        return self.dir.last_attempt()

    @cached_property
    def created(self) -> float:
        """When it was started first [s since 1970]; raises ConfigError where nothing says so."""
        file = self.dir.path / "run.json"
        try:
            return float(json.loads(file.read_text("utf-8"))["created"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{file} is damaged: move the run elsewhere") from error

    @cached_property
    def state(self) -> str:
        """Where it stands: the name of a State, perhaps diverged, perhaps with lines lost."""
        told = self.dir.told(state(self.dir, self.queue()).name)
        return f"{told}, incomplete" if self.faults else told

    @cached_property
    def config(self) -> dict[str, object]:
        """Every value of the newest attempt's job by its dotted key.

        Raises ConfigError where there is no such job: the launcher died before it was frozen.
        """
        file = self.dir.attempt(self.attempt) / "job.yaml"
        try:
            return flat(yaml.load(file.read_text(encoding="utf-8"), LOADER))
        except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
            raise ConfigError(f"{self.dir.path} has no job that can be read ({file})") from error

    @cached_property
    def code(self) -> str:
        """The commit that its newest attempt ran, with a mark where the tree was another one."""
        told = read_json(self.dir.attempt(self.attempt) / "code.json") or {}
        git = (told.get("git") or {}).get("ringshard") or {}
        return str(git.get("commit") or "")[:8] + ("+" if git.get("dirty") else "")

    @cached_property
    def curves(self) -> Mapping[str, Curve]:
        """Every metric, over all attempts; a step trained twice counts once."""
        return self.recorded.curves()

    @property
    def newest(self) -> Sequence[Mapping[str, Curve]]:
        """What each start of the ranks of its newest attempt has recorded for the first time, which
        is what MLflow has of it as well."""
        return [s.curves for s in self.recorded.fresh() if s.is_of_ranks(self.attempt)]

    @cached_property
    def recorded(self) -> record.Recorded:
        """All that it has recorded, as it was recorded."""
        return record.read(self.dir.path)

    @cached_property
    def faults(self) -> list[str]:
        """What its record lacks, in words."""
        told = self.recorded
        damaged = f"{told.damaged} lines of its record are damaged (wrong checksum)"
        dropped = f"{told.dropped} lines of its record were refused by the disk"
        missing = unrecorded(self.dir)
        last = f"{missing} steps before an end are not in its record: the disk stayed full"
        numbers = {damaged: told.damaged, dropped: told.dropped, last: missing}
        return [text for text, number in numbers.items() if number]

    @cached_property
    def goodput(self) -> Goodput:
        """Where its wall time went."""
        return history.of_run(self.dir, self.recorded, state(self.dir, self.queue()))

    def worked(self, times: Floats) -> Floats:
        """Seconds of its attempts before these times; what lies between attempts does not count."""
        spans = history.spans(self.dir, self.recorded)
        if not spans:
            begin: Floats = times - times.min(initial=np.inf)
            return begin
        starts, ends = map(np.array, zip(*spans, strict=True))
        before = np.concatenate([[0.0], np.cumsum(ends - starts)])
        place = np.maximum(np.searchsorted(starts, times, side="right") - 1, 0)
        passed: Floats = before[place] + np.maximum(times - starts[place], 0)
        return passed

    @property
    def bigram_entropy(self) -> float | None:
        """What a model of token pairs would reach on the validation split [nats per token]."""
        return self.dir.result(self.attempt).get("bigram_entropy")


def flat(tree: Mapping[str, Any]) -> dict[str, object]:
    """Nested mappings by dotted key."""
    return dict(_leaves(tree, ""))


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


_DEBUG = "debug"
"""Folder of an output root where runs lie that look for a mistake."""


def find(folders: list[Path]) -> list[Run]:
    """The runs in run folders, sweep folders or output roots, oldest first."""
    paths = {path.resolve(): path for folder in folders for path in _inside(folder)}
    queue = cache(ask_queue)  # one question for all of them
    runs = (Run(RunDir(path), queue) for path in paths.values())
    return sorted(runs, key=lambda run: run.created)


def _inside(folder: Path) -> list[Path]:
    """The runs of a folder; those that look for a mistake where it holds no others."""
    if found := _below(folder, 3) or _below(folder / _DEBUG, 3):
        return found
    raise ConfigError(
        f"{folder} holds no run: give run folders, a sweep's folder or an output root"
    )


def _below(folder: Path, depth: int) -> list[Path]:
    if (folder / "run.json").is_file():
        return [folder]
    if not depth or not folder.is_dir():
        return []
    inner = [e.name for e in os.scandir(folder) if e.is_dir() and not e.name.startswith(".")]
    return [run for n in sorted(inner) if n != _DEBUG for run in _below(folder / n, depth - 1)]
