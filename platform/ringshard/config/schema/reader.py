"""Plain data (a parsed YAML file) to dataclasses and back, with the standard library and yaml
alone."""

from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import yaml

from ringshard.config.schema.job import Job
from ringshard.config.schema.optimizer import OPTIMIZERS, Optimizer
from ringshard.config.schema.schedule import SCHEDULES, Schedule

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times faster, where it was built
_BY_NAME: dict[type, dict[str, type]] = {
    Optimizer: dict(OPTIMIZERS),
    Schedule: dict(SCHEDULES),
}


def read_job(path: Path) -> Job:
    """The job frozen in a job.yaml; raises TypeError or KeyError where the file does not fit the
    schema."""
    return cast(Job, build(Job, yaml.safe_load(path.read_text(encoding="utf-8"))))


def as_yaml(value: Any) -> str:
    """A dataclass, or plain data, as YAML; keys keep their order."""
    return str(yaml.dump(plain(value), Dumper=_DUMPER, sort_keys=False, allow_unicode=True))


def build(kind: Any, value: Any) -> Any:
    """An object of type `kind` (dataclass, enum, container or scalar annotation) from plain
    data."""
    if kind is Any or value is None:
        return value
    if get_origin(kind) in (Union, UnionType):
        return build(_member(kind, value), value)
    if get_origin(kind) is dict:
        return {key: build(get_args(kind)[1], item) for key, item in value.items()}
    if get_origin(kind) is list:
        return [build(get_args(kind)[0], item) for item in value]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind[value]
    return _dataclass(kind, value) if is_dataclass(kind) else kind(value)


def _member(union: Any, value: Any) -> Any:
    """The member of a union such as `int | float | None` that a value is of; the first one if none
    is."""
    members = [member for member in get_args(union) if member is not NoneType]
    return next((m for m in members if isinstance(m, type) and isinstance(value, m)), members[0])


def _dataclass(kind: Any, value: dict[str, Any]) -> Any:
    kind = _BY_NAME.get(kind, {}).get(value.get("name", ""), kind)
    hints = get_type_hints(kind)
    return kind(**{key: build(hints[key], item) for key, item in value.items()})


def plain(value: Any) -> Any:
    """Plain data from dataclasses and enums; `build` undoes it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value
