"""docs/config.md from the schema: `python -m ringshard.config.reference > docs/config.md`."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any, get_args, get_type_hints

from ringshard.config.schema.job import Job
from ringshard.config.schema.optimizer import OPTIMIZERS
from ringshard.config.schema.reader import plain
from ringshard.config.schema.schedule import SCHEDULES

_HEAD = """# Configuration

Every key of a job. `python jobs/train.py --cfg job` prints the values of a command line;
`group=option` chooses a file of `conf/group/`, `key=value` sets a single key. This page is made
from the schema's docstrings: `python -m ringshard.config.reference > docs/config.md`.
"""


def documented(kind: type) -> dict[str, str]:
    """Field name -> the docstring below it, for a dataclass and its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        body = ast.parse(inspect.getsource(base)).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                text = below.value if isinstance(below, ast.Expr) else None
                if isinstance(text, ast.Constant):
                    found[field.target.id] = " ".join(str(text.value).split())
    return found


def reference() -> str:
    """The whole page as Markdown."""
    hints = get_type_hints(Job)
    named: dict[str, dict[str, Any]] = {"optimizer": {**OPTIMIZERS}, "schedule": {**SCHEDULES}}
    sections = [_HEAD]
    for field in fields(Job):
        for name, kind in named.get(field.name, {"": hints[field.name]}).items():
            title = f"{field.name}={name}" if name else field.name
            sections.append(_section(title, field.name, kind))
    return "\n".join(sections)


def _section(title: str, prefix: str, kind: type) -> str:
    """A table of one group's keys, those of the groups inside it too."""
    lines = [f"## {title}", "", inspect.getdoc(kind) or "", ""]
    lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in _rows(prefix, kind)]
    return "\n".join([*lines, ""])


def _rows(prefix: str, kind: type) -> Iterator[tuple[str, str, str, str]]:
    hints, texts = get_type_hints(kind), documented(kind)
    for field in fields(kind):
        hint = hints[field.name]
        key = f"{prefix}.{field.name}"
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _rows(key, hint)
            continue
        yield f"`{key}`", _type(hint), _default(field), texts[field.name]
        for part in get_args(hint):
            if isinstance(part, type) and is_dataclass(part):
                yield from _rows(f"{key}.NAME", part)


def _type(hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(member.name for member in hint)
    if isinstance(hint, type) and not get_args(hint):
        return hint.__name__
    without_modules = re.sub(r"\w+\.", "", str(hint))
    return without_modules.replace("None", "null").replace(" | ", " or ")


def _default(field: "Field[Any]") -> str:
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    if value == "???":
        return "set by conf"
    return f"`{json.dumps(plain(value)).strip(chr(34))}`"


if __name__ == "__main__":
    print(reference(), end="")
