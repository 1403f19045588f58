"""A config of which only what is named counts: the rest is what another job, frozen earlier, has.

So `hardware.processes_per_node=1` changes this one number of a run's job, and no default of a
primary config hides the others.
"""

from dataclasses import fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ringshard.config.leaves import named

_UNNAMED = "???"


def blank(schema: type) -> DictConfig:
    """The keys and types of a schema; those of its groups have no value yet.

    The root takes any group: debug=on speaks of tracking as well, which not every job has.
    """
    typed = OmegaConf.structured(schema)
    for name in typed:
        if isinstance(typed._get_node(name), DictConfig):
            _forget(typed[name])
    return OmegaConf.create({name: typed._get_node(name) for name in typed})


def _forget(group: DictConfig) -> None:
    for name in group:
        inner = group._get_node(name)
        if isinstance(inner, DictConfig):
            _forget(inner)
        else:
            group[name] = _UNNAMED


def laid_over(base: Any, config: DictConfig, overrides: list[str]) -> DictConfig:
    """A dataclass with the values that a composed config names; interpolations see the result.

    Groups that the dataclass does not have go, unless the user named them: that is a mistake.
    """
    known = {field.name for field in fields(base)} | {named(o).split(".")[0] for o in overrides}
    kept = OmegaConf.masked_copy(config, [name for name in config if name in known])
    merged = OmegaConf.merge(OmegaConf.structured(base), kept)
    assert isinstance(merged, DictConfig)
    return merged
