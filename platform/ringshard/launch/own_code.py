"""Names that the user's modules register, found out in a process that imports them.

`python -m ringshard.launch.own_code` reads the `user` group on stdin and prints kind -> names; the
submit side imports no module of a user, which may import torch.
"""

import json
import sys
from difflib import get_close_matches
from functools import cache
from typing import get_args

from ringshard import child, registry
from ringshard.config.schema.data import CorpusKind
from ringshard.config.schema.job import Job, User
from ringshard.config.schema.optimizer import OPTIMIZERS
from ringshard.config.schema.reader import build, plain
from ringshard.errors import ConfigError


def check_names(job: Job) -> None:
    """Raises ConfigError for an optimizer, hook or corpus that no module registers."""
    asked = _asked(job)
    names = _registered(json.dumps(plain(job.user))) if asked and job.user.modules else {}
    for key, kind, name in asked:
        known = names.get(kind, [])
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "add its module to user.modules"
            raise ConfigError(f"{key}={name} is not a registered {kind}: {hint}")


def _asked(job: Job) -> list[tuple[str, registry.Kind, str]]:
    """(key, kind, name) of all that has to come from a module of the user."""
    asked: list[tuple[str, registry.Kind, str]] = [
        (f"data.corpora.{key}.name", "corpus", str(corpus.name))
        for key, corpus in job.data.corpora.items()
        if corpus.kind is CorpusKind.custom
    ]
    asked += [("train.hooks", "hook", name) for name in job.train.hooks]
    if job.optimizer.name not in OPTIMIZERS:
        asked.append(("optimizer.name", "optimizer", job.optimizer.name))
    return asked


@cache
def _registered(user: str) -> dict[str, list[str]]:
    try:
        names: dict[str, list[str]] = child.ask("ringshard.launch.own_code", about=json.loads(user))
    except child.ChildError as error:
        modules = json.loads(user)["modules"]
        raise ConfigError(f"user.modules={modules} fail: {error.last_line}") from error
    return names


def main() -> int:
    """See the module's docstring."""
    return child.answer(_tell_registered)


def _tell_registered() -> None:
    registry.import_user_modules(build(User, json.load(sys.stdin)))
    print(json.dumps({kind: registry.registered(kind) for kind in get_args(registry.Kind)}))


if __name__ == "__main__":
    sys.exit(main())
