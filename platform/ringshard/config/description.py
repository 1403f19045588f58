"""Descriptions of models without torch: a cache, filled by a subprocess that has torch."""

import hashlib
import json
import os
import sys
from contextlib import suppress
from dataclasses import fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from ringshard import child
from ringshard.config.schema.description import Description, Traits, Weight
from ringshard.config.schema.job import User
from ringshard.config.schema.model import Model
from ringshard.config.schema.reader import build, plain
from ringshard.errors import ConfigError
from ringshard.files import read_json, write_json


def describe(model: Model, vocab_size: int, user: User) -> Description:
    """What `ringshard.model.describe` finds; raises ConfigError with its sentence.

    A miss of the cache ($XDG_CACHE_HOME/ringshard) takes a few seconds and says so on stderr. With
    user modules only this process remembers, as their code may define the model and change.
    """
    asked = {"model": plain(model), "vocab_size": vocab_size, "user": plain(user)}
    key, question = _key(asked, model), json.dumps(asked, sort_keys=True)
    if user.modules:
        return _description(_computed(question, key))
    cached = _cache() / f"{key}.json"
    found = None
    with suppress(OSError, ConfigError):  # not readable, or damaged: as if it were not there
        found = read_json(cached)
    if found is None:
        found = _computed(question, key)
        with suppress(OSError):  # it only saves time
            cached.parent.mkdir(parents=True, exist_ok=True)
            write_json(cached, found)
    return _description(found)


def _description(found: dict[str, Any]) -> Description:
    return cast(Description, build(Description, found))


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "ringshard" / "models"


def _key(asked: dict[str, Any], model: Model) -> str:
    """Changes with what is asked, what is described, the code and configuration in a directory, and
    releases."""
    key = {name: asked[name] for name in ("model", "vocab_size")}
    key["fields"] = [field.name for kind in (Description, Traits, Weight) for field in fields(kind)]
    key["versions"] = [version("ringshard"), version("transformers")]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode())
    directory = model.pretrained or model.path
    for path in sorted(Path(directory).glob("*")) if directory else ():
        if path.name == "config.json" or path.suffix == ".py":
            digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _computed(asked: str, key: str) -> dict[str, Any]:
    """Once for each `key`, which also knows what lies in a model's folder."""
    model = json.loads(asked)["model"]
    kind = model["type"] or model["pretrained"] or model["path"]
    print(f"Looking at the model {kind}: this takes a few seconds.", file=sys.stderr, flush=True)
    found: dict[str, Any] = child.ask("ringshard.model.describe", about=json.loads(asked))
    return found
