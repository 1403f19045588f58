"""A sweeper that only expands and a launcher that only composes: Hydra writes and runs nothing.

Hydra's own sweeper writes multirun.yaml and composes every member once more before a launcher is
called, and its launchers stop at the first bad member after having run the ones before it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import ConfigCompositionException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from hydra_plugins.ringshard_hydra.composer import Composer


class RingshardSweeper(Sweeper):
    """The cartesian product of all values: comma lists, choice, range and glob."""

    def __init__(self, params: dict[str, Any] | None = None) -> None:
        self.params = params or {}

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keeps what Hydra hands over and makes the launcher."""
        self.hydra_context = hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Launches all members at once; `hydra.sweeper.params` yield to the command line."""
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        params = [f"{key}={value}" for key, value in self.params.items()]
        overrides = parser.parse_overrides([*params, *arguments])
        return self.launcher.launch(expand(overrides), initial_job_idx=0)


def expand(overrides: list[Override]) -> list[list[str]]:
    """Every combination of the values that are swept; the last override of a key wins."""
    values = {override.get_key_element(): _values(override) for override in overrides}
    return [list(member) for member in product(*values.values())]


def _values(override: Override) -> list[str]:
    if not override.is_sweep_override():
        assert override.input_line is not None
        return [override.input_line]
    if not override.is_discrete_sweep():
        raise ConfigCompositionException(
            f"{override.input_line}: an interval has no end of values, use choice() or range(), or"
            " let search=tpe choose from it"
        )
    key = override.get_key_element()
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


@dataclass(frozen=True)
class Members:
    """Overrides and config of each member, composed one at a time."""

    compose: Callable[[list[str]], DictConfig]
    """Composes any other."""
    overrides: list[list[str]]

    def __iter__(self) -> Iterator[tuple[list[str], DictConfig]]:
        return ((one, self.compose(one)) for one in self.overrides)


class RingshardLauncher(Launcher):
    """Composes every member, one at a time, for the task function: it sees all before it acts."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keeps what Hydra hands over."""
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.composer = Composer(hydra_context.config_loader, config)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Calls the task function with (overrides, config) of all members.

        What it returns, a value or an exception for each, is what a sweeper finds in the results.
        """
        overrides = [list(o) for o in job_overrides]
        values = self.task_function(Members(self._compose, overrides))
        return list(map(_result, overrides, values or [None] * len(overrides)))

    def _compose(self, overrides: list[str]) -> DictConfig:
        config = self.composer.compose(overrides)
        HydraConfig.instance().set_config(config)  # ${hydra:…} means this member until the next one
        config = config.copy()
        OmegaConf.set_readonly(config, False)
        with open_dict(config):
            del config["hydra"]
        return config


def _result(overrides: list[str], value: float | Exception | None) -> JobReturn:
    """A sweeper that reads the return_value of a failed member gets the exception raised."""
    failed = isinstance(value, Exception)
    status = JobStatus.FAILED if failed else JobStatus.COMPLETED
    return JobReturn(overrides=overrides, status=status, _return_value=value)


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="ringshard",
    node={"_target_": f"{__name__}.RingshardSweeper", "params": None},
    provider="ringshard",
)
ConfigStore.instance().store(
    group="hydra/launcher",
    name="ringshard",
    node={"_target_": f"{__name__}.RingshardLauncher"},
    provider="ringshard",
)
