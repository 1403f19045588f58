"""A configuration as flat dotted keys; what is not a dataclass (a list, a mapping) is one leaf."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from ringshard.config.schema.reader import plain


def leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted key -> plain value of every field of a dataclass."""
    return dict(_walk(value, prefix))


def _walk(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for field in fields(value):
        inner = getattr(value, field.name)
        key = f"{prefix}{field.name}"
        if is_dataclass(inner):
            yield from _walk(inner, f"{key}.")
        else:
            yield key, plain(inner)


def under(key: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a dotted key is one of the prefixes or lies below one."""
    return any(key == prefix or key.startswith(f"{prefix}.") for prefix in prefixes)


def named(override: str) -> str:
    """The key or group of an override."""
    return override.lstrip("+~").partition("=")[0]


def put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Sets a dotted key in nested dictionaries."""
    *groups, name = key.split(".")
    for group in groups:
        tree = tree[group]
    tree[name] = value
