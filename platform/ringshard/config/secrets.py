"""Values that must not be in a configuration: it is written to disk, and to MLflow, as it is."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ringshard.config.leaves import leaves
from ringshard.config.schema.job import Job
from ringshard.errors import ConfigError

_NAME = re.compile(
    r"(token|secret|password|passwd|passphrase|credential|apikey)s?(_|$)"
    r"|(^|_)(key|auth)(_|$)|_(pw|pwd)$",
    re.I,
)
_VALUE = re.compile(
    r"://[^/@\s]*:[^/@\s]+@"  # an address with a password
    r"|[?&](password|passwd|token|api_?key|secret)="
    r"|^(hf_|sk-|gh[opsu]_|github_pat_|glpat-|AKIA|xox[abp]-)[\w-]{12,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY",
    re.I,
)
_ASSIGNED = re.compile(r"(\w+)=[\"']?[^\s$\"']")
"""A variable of a shell's line, with a value that is no other variable's."""


def refuse_secrets(job: Job) -> None:
    """Raises ConfigError, which does not tell the value, for the first key that holds a secret."""
    for key, value in _texts(leaves(job)):
        if is_secret(value) or any(map(names_secret, _set(key, value))):
            raise ConfigError(f"{key} holds a secret, which is written to a run's files: {FIX}")


def refuse_password(uri: str) -> None:
    """Raises ConfigError for an address of MLflow with a password or a token in it."""
    if is_secret(uri):
        raise ConfigError(f"tracking.uri holds a secret, which is written to a run's files: {FIX}")


FIX = (
    "leave it out and export it in the shell, whose environment reaches every process (for MLflow"
    " MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD)"
)


def is_secret(value: object) -> bool:
    """Whether a text looks like a password or a token."""
    return isinstance(value, str) and bool(_VALUE.search(value))


def names_secret(name: str) -> bool:
    """Whether a name is one that passwords and tokens are kept under."""
    return bool(_NAME.search(name))


def _set(key: str, value: Any) -> list[str]:
    """The environment variables that get a value there."""
    if key.startswith("hardware.env."):
        return [key.removeprefix("hardware.env.")] if value else []
    return _ASSIGNED.findall(str(value)) if key.startswith("hardware.slurm.") else []


def _texts(tree: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and value of all that lies in nested mappings and lists."""
    for key, value in tree.items():
        inner = dict(enumerate(value)) if isinstance(value, list) else value
        if isinstance(inner, Mapping):
            yield from _texts(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner
