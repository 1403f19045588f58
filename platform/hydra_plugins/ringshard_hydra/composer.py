"""Compositions of a sweep's members, of which most differ in values alone.

Hydra composes a member from all files anew, in a tenth of a second. The files that it takes are
decided by the groups alone, so that one composition serves all members that choose the same ones.
"""

from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf


class Composer:
    """What Hydra's loader would compose, key for key."""

    def __init__(self, loader: ConfigLoader, master: DictConfig) -> None:
        assert isinstance(loader, ConfigLoaderImpl)
        self._loader, self._master = loader, master
        self._parser = OverridesParser.create(config_loader=loader)
        self._known: dict[tuple[str, ...], DictConfig | None] = {}
        # Groups of a search path are not known to the loader's own repository.
        self._trusts = not OmegaConf.select(master, "hydra.searchpath")

    def compose(self, overrides: list[str]) -> DictConfig:
        """The config of a member, `hydra` included; raises what Hydra raises."""
        parsed = self._parser.parse_overrides(overrides)
        values = [one for one in parsed if self._is_value(one)]
        groups = tuple(one.input_line or "" for one in parsed if one not in values)
        if groups not in self._known:
            self._known[groups] = self._base(list(groups)) if self._trusts else None
        base = self._known[groups]
        if base is None:
            return self._loader.load_sweep_config(self._master, overrides)
        config = base.copy()
        ConfigLoaderImpl._apply_overrides_to_config(values, config)
        return config

    def _is_value(self, override: Override) -> bool:
        key = override.key_or_group
        return not self._loader.repository.group_exists(key) and not key.startswith("hydra")

    def _base(self, groups: list[str]) -> DictConfig | None:
        """The composition without values; None where a config asks Hydra for what differs between
        members of the same groups."""
        config = self._loader.load_sweep_config(self._master, groups)
        plain = OmegaConf.to_container(config, resolve=False)
        assert isinstance(plain, dict)
        task = {key: value for key, value in plain.items() if key != "hydra"}
        return None if _asks_hydra(task) else config


def _asks_hydra(node: Any) -> bool:
    """Whether an interpolation looks at Hydra's own config, but for the choices of groups."""
    if isinstance(node, dict):
        return any(_asks_hydra(value) for value in node.values())
    if isinstance(node, list):
        return any(_asks_hydra(value) for value in node)
    if not isinstance(node, str):
        return False
    return "hydra" in node.replace("${hydra:runtime.choices", "") and "${" in node
