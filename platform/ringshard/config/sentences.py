"""What Hydra and OmegaConf complain about, in one sentence that names key, value and fix."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, get_type_hints

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationKeyError,
    InterpolationResolutionError,
    OmegaConfBaseException,
    ValidationError,
)

from ringshard.config.schema.optimizer import OPTIMIZERS
from ringshard.config.schema.schedule import SCHEDULES


def sentence(error: BaseException, overrides: list[str], schema: type) -> str:
    """One sentence for an exception of a composition."""
    if isinstance(error, OverrideParseException):
        return _syntax(error)
    if isinstance(error, MissingConfigException):
        return _unknown_option(error)
    if "Config group override must be a string" in str(error):
        return _null_group(overrides, str(error))
    cause = next((e for e in _chain(error) if isinstance(e, OmegaConfBaseException)), None)
    if cause is not None:
        return _omegaconf(cause, overrides, schema)
    return _first_lines(error)


def unknown_key(key: str, value: Any, schema: type) -> str:
    """The sentence for a key that the schema does not have, with the nearest ones it has."""
    known = list(_keys(schema))
    named = [k for k in known if k.split(".")[-1] == key.split(".")[-1]]
    near = named or get_close_matches(key, known, n=2, cutoff=0.6)
    hint = f"did you mean {' or '.join(near[:2])}?" if near else "--cfg job prints all keys"
    shown = "" if value is None else f"={value}"
    return f"{key}{shown}: there is no such key; {hint}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _first_lines(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text.split(" Config search path:")[0].split(" See https://")[0]


def _syntax(error: OverrideParseException) -> str:
    key, equals, value = error.override.partition("=")
    if not equals:
        return f"{error.override}: an argument is key=value, as in train.steps=100"
    reason = _first_lines(error).removeprefix(f"Error parsing override '{error.override}' ")
    if "LexerNoViableAlt" in reason:
        reason = "a character that must be quoted"
    return f"{key}={value} cannot be parsed ({reason}): quote the value, '{key}=\"{value}\"'"


def _unknown_option(error: MissingConfigException) -> str:
    group, _, option = (error.missing_cfg_file or "").rpartition("/")
    if not group:
        return f"{_first_lines(error)} (a primary config is named without .yaml)"
    options = [name for name in error.options or [] if not name.endswith("_schema")]
    near = get_close_matches(option, options, n=1)
    hint = f"did you mean {group}={near[0]}? " if near else ""
    return f"{group}={option}: there is no such option; {hint}it is one of {', '.join(options)}"


def _null_group(overrides: list[str], reason: str) -> str:
    for override in overrides:
        key, _, value = override.partition("=")
        if "." not in key and "null" in re.split(r"[,()\[\]]", value):
            fix = f"use {key}=none" if key in ("experiment", "tracking") else f"name a {key}"
            return f"{override}: null is no option of the group {key}; {fix}"
    return f"{' '.join(overrides)}: {reason}"


def _omegaconf(error: OmegaConfBaseException, overrides: list[str], schema: type) -> str:
    key = error.full_key or str(error.key)
    given = next((o for o in overrides if o.lstrip("+~").split("=")[0] == key), key)
    reason = str(error.msg or error).split("\n")[0]
    if isinstance(error, ConfigAttributeError | ConfigKeyError):
        return _no_key(key, given, str(error), schema)
    if isinstance(error, InterpolationKeyError | InterpolationResolutionError):
        variable = re.search(r"Environment variable '(\w+)' not found", reason)
        if variable:
            return f"{given}: the environment variable {variable[1]} is not set; set it"
        return f"{given}: {reason}; give a value or an existing key"
    if isinstance(error, ValidationError):
        return _wrong_value(key, given, error, reason)
    return f"{given}: {reason}"


def _no_key(key: str, given: str, text: str, schema: type) -> str:
    if "reference_type=Dict" in text:
        return f"{given}: {key} is not there yet; a new entry is added with a plus, +{given}"
    return unknown_key(key, given.partition("=")[2] or None, schema)


def _wrong_value(key: str, given: str, error: ValidationError, reason: str) -> str:
    if "is not a subclass of" in reason:
        return f"{given}: a new entry is given whole, as in +data.corpora.{key}='{{path: …}}'"
    if "not Optional" in reason:
        return f"{given}: null is not allowed; give a value"
    shown = key if error.value is None else f"{key}={error.value}"
    wanted = re.search(r"could not be converted to (\w+)", reason)
    if wanted:
        name = {"Integer": "an integer", "Float": "a number", "Boolean": "true or false"}
        return f"{shown} must be {name.get(wanted[1], wanted[1])}"
    options = re.search(r"expected one of \[(.*)\]", reason)
    return f"{shown} must be one of {options[1]}" if options else f"{shown}: {reason}"


def _keys(schema: type, prefix: str = "") -> Iterator[str]:
    """All dotted keys of a schema, those of every optimizer and schedule too."""
    if prefix:
        yield prefix.rstrip(".")
    kinds: dict[str, list[type]] = {
        "optimizer.": list(OPTIMIZERS.values()),
        "schedule.": list(SCHEDULES.values()),
    }
    for kind in [schema, *kinds.get(prefix, [])]:
        hints = get_type_hints(kind)
        for field in fields(kind):
            if is_dataclass(hints[field.name]):
                yield from _keys(hints[field.name], f"{prefix}{field.name}.")
            else:
                yield f"{prefix}{field.name}"
