"""Runs as their directories tell them: configuration, state, curves. No MLflow is asked."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

from ringshard.errors import ConfigError
from ringshard.launch.rundir import RunDir
from ringshard.launch.state import Queue, ask_queue, state
from ringshard.tracking.spool import read_spool, spools

Curve = list[tuple[int, float]]
"""(step, value), in the order of training."""


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
        """Where it stands: the name of a State, perhaps diverged."""
        return self.dir.told(state(self.dir, self.queue()).name)

    @cached_property
    def config(self) -> dict[str, object]:
        """Every value of the newest attempt's job by its dotted key.

        Raises ConfigError where there is no such job: the launcher died before it was frozen.
        """
        file = self.dir.attempt(self.attempt) / "job.yaml"
        try:
            return dict(_leaves(yaml.safe_load(file.read_text(encoding="utf-8")), ""))
        except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
            raise ConfigError(f"{self.dir.path} has no job that can be read ({file})") from error

    @property
    def curves(self) -> dict[str, Curve]:
        """Every metric, over all attempts; a step trained twice counts once."""
        return self._recorded[0]

    @property
    def lost(self) -> int:
        """Lines of the record that the disk refused, or that have a wrong checksum."""
        return self._recorded[1]

    @cached_property
    def _recorded(self) -> tuple[dict[str, Curve], int]:
        curves: dict[str, Curve] = {}
        lost = 0
        for spool in spools(self.dir.path):
            dropped = 0
            for record, _ in read_spool(spool.path):
                if record is None:
                    lost += 1
                    continue
                dropped = record.dropped
                for key, value in spool.fresh(record).items():
                    curves.setdefault(key, []).append((record.step, value))
            lost += dropped
        return curves, lost

    def last(self, metric: str) -> float | None:
        """The newest value of a metric."""
        return self.curves[metric][-1][1] if metric in self.curves else None

    @property
    def step(self) -> int:
        """The newest step that was recorded."""
        return max((curve[-1][0] for curve in self.curves.values()), default=0)

    @property
    def bigram_entropy(self) -> float | None:
        """What a model of token pairs would reach on the validation split [nats per token]."""
        return self.dir.result(self.attempt).get("bigram_entropy")


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def find(folders: list[Path]) -> list[Run]:
    """The runs in run folders, sweep folders or output roots, oldest first."""
    paths = {path.resolve(): path for folder in folders for path in _inside(folder)}
    queue = cache(ask_queue)  # one question for all of them
    runs = (Run(RunDir(path), queue) for path in paths.values())
    return sorted(runs, key=lambda run: run.created)


def _inside(folder: Path) -> list[Path]:
    if (folder / "run.json").is_file():
        return [folder]
    below = [f.parent for depth in (1, 2, 3) for f in folder.glob("*/" * depth + "run.json")]
    apart = [path for path in below if path.relative_to(folder).parts[0] == "debug"]
    if found := [path for path in below if path not in apart] or apart:
        return found
    raise ConfigError(
        f"{folder} holds no run: give run folders, a sweep's folder or an output root"
    )
