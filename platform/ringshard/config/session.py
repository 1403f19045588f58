"""Hydra kept open: members composed one after another, each when it is known.

Hydra composes a command line from the files it finds in a second; of a session it does so once.
"""

from collections.abc import Callable
from dataclasses import replace

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from ringshard.config.compose import Command, Member, in_hydra, in_sentences, typed_members
from ringshard.config.schema.job import Job


class Session:
    """Composes jobs with a command line's primary config and options."""

    def __init__(self, command: Command) -> None:
        """Raises ConfigError as `compose` does."""
        of_hydra = [word for word in command.overrides if _is_hydras(word)]
        self._compose: Callable[[list[str]], DictConfig]
        asked = replace(command, overrides=of_hydra)
        in_hydra(asked, Job, lambda members: self._keep(members))

    def _keep(self, members: object) -> None:
        self._hydra = GlobalHydra.instance().hydra
        self._compose = members.compose  # type: ignore[attr-defined]  # of the plugin's Members

    def parse(self, overrides: list[str]) -> list[Override]:
        """What overrides say; raises ConfigError for what cannot be parsed."""
        assert self._hydra is not None
        parser = OverridesParser.create(config_loader=self._hydra.config_loader)
        with in_sentences(overrides, Job):
            return parser.parse_overrides(overrides)

    def member(self, overrides: list[str]) -> Member[Job]:
        """The one job of overrides that sweep nothing; raises ConfigError."""
        tasks = [word for word in overrides if not _is_hydras(word)]
        before, GlobalHydra.instance().hydra = GlobalHydra.instance().hydra, self._hydra
        try:
            with in_sentences(overrides, Job):
                (found,) = typed_members([(overrides, self._compose(tasks))], Job)
            return found
        finally:
            GlobalHydra.instance().hydra = before


def _is_hydras(word: str) -> bool:
    return word.lstrip("+~").startswith(("hydra.", "hydra/"))
