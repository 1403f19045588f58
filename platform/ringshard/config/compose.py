"""From a command line to typed jobs: Hydra composes, the schema types, nothing is written.

With `overlay`, `sentences` and the Hydra plugin, the only module that knows Hydra and OmegaConf.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import GroupDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from ringshard.child import ChildError
from ringshard.config import overlay
from ringshard.config.leaves import named
from ringshard.config.opened import opened
from ringshard.config.schema.optimizer import OPTIMIZERS
from ringshard.config.schema.schedule import SCHEDULES
from ringshard.config.sentences import sentence, unknown_key
from ringshard.errors import ConfigError

T = TypeVar("T")
Beneath = Callable[[list[str], Any], T]
"""From the overrides of a member and its config, as far as named, to all values."""
Composed = Iterable[tuple[list[str], DictConfig]]
"""Overrides and config of each member; composed one at a time."""
Result = float | Exception
"""What came out of a run: the last value of launcher.metric, or why there is none."""


@dataclass(frozen=True)
class Command:
    """A command line, taken apart."""

    config_name: str
    """The primary config."""
    options: list[str]
    """Hydra's options (--config-dir …), without -m."""
    overrides: list[str]
    """key=value arguments."""
    prints: bool = False
    """Whether Hydra is only asked to print (--cfg, --info, --help)."""
    dry_run: bool = False
    """Whether to show what would be done, and do nothing."""


@dataclass(frozen=True)
class Member(Generic[T]):
    """One configuration of a command line; a single run is a sweep of one."""

    overrides: list[str]
    config: T


def compose(
    command: Command, schema: type[T], beneath: Beneath[T] | None = None
) -> list[Member[T]]:
    """All members of a command line, typed; empty where Hydra only printed (--cfg, --help).

    beneath: what a member has where it names nothing, for a schema whose groups have no defaults.
    Raises ConfigError, in one sentence, for whatever Hydra, OmegaConf or the schema refuse.
    """
    members: list[Member[T]] = []

    def collect(composed: Composed) -> None:
        members.extend(typed_members(composed, schema, beneath))
        if not members:
            raise ConfigError(
                f"{' '.join(command.overrides)}: the sweep has no member, give values"
            )

    node = overlay.blank(schema) if beneath else schema
    in_hydra(replace(command, overrides=opened(command.overrides)), schema, collect, node)
    return members


def drive(
    command: Command, schema: type[T], run: Callable[[list[Member[T]]], list[Result]]
) -> None:
    """Lets a sweeper of Hydra's protocol choose members and run them, batch by batch.

    run: runs a batch and returns what came out of each. Raises what `compose` does, and ChildError
    where the sweeper gives up for a member that failed.
    """

    def answer(composed: Composed) -> list[Result]:
        return run(list(typed_members(composed, schema)))

    in_hydra(replace(command, overrides=opened(command.overrides)), schema, answer)


def typed_members(
    composed: Composed, schema: type[T], beneath: Beneath[T] | None = None
) -> Iterator[Member[T]]:
    """Members whose values have the schema's types; raises what OmegaConf does, or ConfigError."""
    for overrides, config in composed:
        _check_type(overrides, config)
        _refuse_lost(overrides)
        if beneath:
            config = overlay.laid_over(beneath(overrides, config), config, overrides)
        yield Member(overrides, _typed(config, schema))


def in_hydra(
    command: Command, schema: type, task: Callable[[Composed], object], node: Any = None
) -> None:
    """Calls a task with what Hydra composes; what Hydra complains about comes as ConfigError.

    node: stands for the schema where it is another one.
    """
    _store(command.config_name, node or schema)
    with in_sentences(command.overrides, schema):
        _hydra(command, task)


@contextmanager
def in_sentences(overrides: list[str], schema: type) -> Iterator[None]:
    """What Hydra or OmegaConf raise comes as ConfigError."""
    full_error = os.environ.get("HYDRA_FULL_ERROR") == "1"
    try:
        yield
    except (ConfigError, ChildError):
        raise
    except Exception as error:
        if full_error:
            raise
        raise ConfigError(sentence(error, overrides, schema)) from error


def quoted(key: str, value: str) -> str:
    """An override whose value Hydra reads as it is."""
    return f"{key}={QuotedString(value, Quote.single).with_quotes()}"


def conf_dir() -> Path:
    """The folder of the config groups: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "conf"
    return inside if inside.is_dir() else package.parents[1] / "conf"


def _store(config_name: str, schema: Any) -> None:
    """Under the name of every primary config, for the user's own may begin with one of ours."""
    store = ConfigStore.instance()
    for name in (config_name, *(path.stem for path in conf_dir().glob("*.yaml"))):
        store.store(name=f"{name}_schema", node=schema)
    for group, kinds in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)):
        for name, kind in kinds.items():
            store.store(group=f"schema/{group}", name=name, node=kind)


def _hydra(command: Command, task: Callable[[Composed], object]) -> None:
    """Runs hydra.main on a command line; its errors come as exceptions instead of sys.exit(1)."""
    task.__module__ = "ringshard"  # else Hydra looks for the folder of the function's file
    app = hydra.main(str(conf_dir()), command.config_name, version_base="1.3")(task)
    multirun = [] if command.prints else ["--multirun"]
    with _argv([sys.argv[0], *command.options, *multirun, *command.overrides]), _full_error():
        app()


@contextmanager
def _argv(argv: list[str]) -> Iterator[None]:
    before, sys.argv = sys.argv, argv
    try:
        yield
    finally:
        sys.argv = before


@contextmanager
def _full_error() -> Iterator[None]:
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        del os.environ["HYDRA_FULL_ERROR"]
        if before is not None:
            os.environ["HYDRA_FULL_ERROR"] = before


def _refuse_lost(overrides: list[str]) -> None:
    """Where both a primary config and an experiment of it override a group, Hydra drops the
    experiment's choice without a word."""
    chosen = HydraConfig.get().runtime.choices
    option = _option(f"experiment/{chosen['experiment']}") if "experiment" in chosen else None
    typed = [named(override) for override in overrides]
    for default in option.defaults_list or [] if option else []:
        if not (isinstance(default, GroupDefault) and default.override and default.group):
            continue
        group = default.group.lstrip("/")
        if group not in typed and chosen.get(group) != default.value:
            raise ConfigError(
                f"{group}={default.value} of experiment={chosen['experiment']} is lost, for the"
                f" primary config overrides {group} as well: give {group}=OPTION"
            )


def _option(path: str) -> ConfigResult | None:
    loader = GlobalHydra.instance().config_loader()
    assert isinstance(loader, ConfigLoaderImpl)
    return loader.repository.load_config(path)


def _check_type(overrides: list[str], config: DictConfig) -> None:
    """A type given beside an option of another type would be laid over fields it does not have."""
    chosen = HydraConfig.get().runtime.choices.get("model")
    if chosen == "custom" and not config.model.type:
        raise ConfigError("model.type is missing: give it, as in model=custom model.type=gpt2")
    if chosen is None or "model.type" not in map(named, overrides):
        return
    option = _option(f"model/{chosen}")
    own = OmegaConf.select(option.config, "type") if option else None
    if own not in (None, config.model.type):
        raise ConfigError(
            f"model.type={config.model.type} does not go with model={chosen}'s fields:"
            " use model=custom"
        )


def _typed(config: DictConfig, schema: type[T]) -> T:
    """The dataclass of a composed config: interpolations resolved, nothing missing or extra."""
    missing = sorted(OmegaConf.missing_keys(config))
    if missing:
        raise ConfigError(f"{missing[0]} is missing: give {missing[0]}=VALUE")
    OmegaConf.resolve(config)
    job = cast(T, OmegaConf.to_object(config))
    _refuse_extra(config, job, "", schema)
    return job


def _refuse_extra(config: Any, typed: Any, prefix: str, schema: type) -> None:
    """`+key=value` gets past OmegaConf's own check of a structured config."""
    names = {field.name for field in fields(typed)}
    for name in config:
        if name not in names:
            raise ConfigError(unknown_key(f"{prefix}{name}", config[name], schema))
        inner = getattr(typed, name)
        if is_dataclass(inner):
            _refuse_extra(config[name], inner, f"{prefix}{name}.", schema)
        elif isinstance(inner, dict):
            for key, item in inner.items():
                if is_dataclass(item):
                    _refuse_extra(config[name][key], item, f"{prefix}{name}.{key}.", schema)
