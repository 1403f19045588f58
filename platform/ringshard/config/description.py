"""Descriptions of models without torch: a cache, filled by a subprocess that has torch."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from ringshard.config.schema.description import Description, Traits
from ringshard.config.schema.job import User
from ringshard.config.schema.model import Model
from ringshard.config.schema.reader import build, plain
from ringshard.errors import ConfigError


def describe(model: Model, vocab_size: int, user: User) -> Description:
    """What `ringshard.model.describe` finds; raises ConfigError with its sentence.

    A miss of the cache ($XDG_CACHE_HOME/ringshard) takes a few seconds and says so on stderr. With
    user modules nothing is cached, as their code may define the model and change.
    """
    asked = {"model": plain(model), "vocab_size": vocab_size, "user": plain(user)}
    if user.modules:
        return _description(_computed(asked))
    cached = _cache() / f"{_key(asked, model)}.json"
    if not cached.exists():
        _write(cached, _computed(asked))
    return _description(json.loads(cached.read_text(encoding="utf-8")))


def _description(found: dict[str, Any]) -> Description:
    return cast(Description, build(Description, found))


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "ringshard" / "models"


def _key(asked: dict[str, Any], model: Model) -> str:
    """Changes with what is asked, what is described, the code and configuration in a directory, and
    releases."""
    key = {name: asked[name] for name in ("model", "vocab_size")}
    key["fields"] = [field.name for kind in (Description, Traits) for field in fields(kind)]
    key["versions"] = [version("ringshard"), version("transformers")]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode())
    directory = model.pretrained or model.path
    for path in sorted(Path(directory).glob("*")) if directory else ():
        if path.name == "config.json" or path.suffix == ".py":
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _computed(asked: dict[str, Any]) -> dict[str, Any]:
    kind = asked["model"]["type"] or asked["model"]["pretrained"] or asked["model"]["path"]
    print(f"Looking at the model {kind}: this takes a few seconds.", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "ringshard.model.describe"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 2:
        raise ConfigError(done.stderr.strip().splitlines()[-1])
    if done.returncode:
        raise RuntimeError(f"describing the model {kind} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _write(path: Path, value: dict[str, Any]) -> None:
    """Whole or not at all, for other commands may read it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{uuid4().hex}")
    unfinished.write_text(json.dumps(value), encoding="utf-8")
    unfinished.rename(path)
