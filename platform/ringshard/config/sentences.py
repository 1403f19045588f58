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
    return _omegaconf(cause, overrides, schema) if cause else _composition(error, overrides)


def unknown_key(key: str, value: Any, schema: type) -> str:
    """The sentence for a key that the schema does not have, with the nearest ones it has."""
    known = list(dict.fromkeys(_keys(schema)))
    shown = "" if value is None else f"={value}"
    if key in known:  # of another option
        return (
            f"{key}{shown}: an option that is chosen for {key.split('.')[0]} has no such key; give"
            " it to those that have it, in a command of their own"
        )
    named = [k for k in known if k.split(".")[-1] == key.split(".")[-1]]
    near = named or get_close_matches(key, known, n=2, cutoff=0.6)
    hint = f"did you mean {' or '.join(near[:2])}?" if near else "--cfg job prints all keys"
    return f"{key}{shown}: there is no such key; {hint}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text.split(" Config search path:")[0].split(" See https://")[0]


def _syntax(error: OverrideParseException) -> str:
    key, equals, value = error.override.partition("=")
    if not equals:
        return f"{error.override}: an argument is key=value, as in train.steps=100"
    reason = _one_line(error).removeprefix(f"Error parsing override '{error.override}' ")
    if "LexerNoViableAlt" in reason:
        reason = "a character that must be quoted"
    return f"{key}={value} cannot be parsed ({reason}): quote the value, '{key}=\"{value}\"'"


def _unknown_option(error: MissingConfigException) -> str:
    group, _, option = (error.missing_cfg_file or "").rpartition("/")
    if not group:
        return f"--config-name={option}: there is no such primary config; name one without .yaml"
    options = list(error.options or [])
    near = get_close_matches(option, options, n=1)
    hint = f"did you mean {group}={near[0]}? " if near else ""
    return f"{group}={option}: there is no such option; {hint}it is one of {', '.join(options)}"


def _null_group(overrides: list[str], reason: str) -> str:
    for override in overrides:
        key, _, value = override.partition("=")
        if not key:
            return f"{override}: the key before = is missing"
        if "." not in key and "null" in re.split(r"[,()\[\]]", value):
            fix = f"use {key}=none" if key in ("experiment", "tracking") else f"name a {key}"
            return f"{override}: null is no option of the group {key}; {fix}"
    return f"{' '.join(overrides)}: {reason}"


def _composition(error: BaseException, overrides: list[str]) -> str:
    """What Hydra says without OmegaConf: about groups and plus signs."""
    text = _one_line(error)
    name = re.search(r"'([^']+)'", text) or re.match(r"(\S+) appears", text)
    given = _given(name[1], overrides) if name else ""
    if "appears more than once" in text:
        return f"{given}: an option of this group is chosen already; leave the plus out"
    if "item is already at" in text:
        return f"{given}: the key is there already; leave the plus out"
    if "Ambiguous value" in text or "requires --multirun" in text:
        return f"{given}: only one configuration is shown; give one value (--dry-run shows all)"
    if text.startswith("Could not override"):
        return f"{given}: there is no such group; --info defaults prints them"
    if within := re.match(r"In '([^']+)': Could not override '([^'@]+)", text):
        return _override_within(within[1], within[2])
    return text


def _override_within(config: str, group: str) -> str:
    """Of a defaults list, where a group without a slash is one below the file's own folder."""
    below = f"{config.rpartition('/')[0]}/"
    if group.startswith(below):
        return f"{config}.yaml: write `override /{group.removeprefix(below)}:`, with the slash"
    return f"{config}.yaml: it overrides {group}, and there is no such group"


def _given(key: str, overrides: list[str]) -> str:
    """The override that names a key or something below it; the key itself if none does."""
    for override in reversed(overrides):
        name = override.lstrip("+~").partition("=")[0]
        if name == key or name.startswith(f"{key}."):
            return override
    return key


def _omegaconf(error: OmegaConfBaseException, overrides: list[str], schema: type) -> str:
    key = error.full_key or str(error.key)
    given = _given(key, overrides)
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
    if "does not support deletion" in reason:
        return f"{given}: a key of the schema cannot be taken out; set it to null, or leave it"
    return f"{given}: {reason}"


def _no_key(key: str, given: str, text: str, schema: type) -> str:
    if "Dict[str, Corpus]" in text:
        return _whole_corpus(key.split(".")[2], given)
    if "reference_type=Dict" in text:
        return f"{given}: {key} is not there yet; a new entry is added with a plus, +{given}"
    name, equals, value = given.partition("=")
    below = name.lstrip("+~") if equals and not value.startswith("{") else key
    return unknown_key(below, value or None if below == name else None, schema)


def _whole_corpus(name: str, given: str) -> str:
    whole = f"'+data.corpora.{name}={{kind: text_files, path: FILE}}'"
    return f"{given}: a new corpus is given whole, as in {whole}"


def _wrong_value(key: str, given: str, error: ValidationError, reason: str) -> str:
    if "is not a subclass of Corpus" in reason:
        return _whole_corpus(key, f"data.corpora.{key}")
    if "not Optional" in reason:
        return f"{given}: null is not allowed; give a value"
    shown = key if error.value is None else f"{key}={error.value}"
    wanted = re.search(r"could not be converted to (\w+)", reason)
    if wanted:
        name = {"Integer": "an integer", "Float": "a number", "Boolean": "true or false"}
        return f"{shown} must be {name.get(wanted[1], wanted[1])}"
    if "is not a ListConfig" in reason:
        return f"{given} must be a list, as in {key}=[{given.partition('=')[2]}]"
    if "to Dict[" in reason:
        return f"{given} must be a mapping, as in {key}='{{NAME: …}}'"
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
