"""docs/config.md from the schema: `python -m ringshard.config.reference > docs/config.md`."""

import ast
import inspect
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any, get_args, get_type_hints

from ringshard.config.schema.evaluation import EvaluateJob
from ringshard.config.schema.job import Job
from ringshard.config.schema.optimizer import OPTIMIZERS
from ringshard.config.schema.preflight import PreflightJob
from ringshard.config.schema.prepare import PrepareJob
from ringshard.config.schema.reader import plain
from ringshard.config.schema.schedule import SCHEDULES

_HEAD = """# Configuration

Every key of a job. `python jobs/train.py --cfg job` prints the values of a command line;
`group=option` chooses a file of `conf/group/`, `key=value` sets a single key. This page is made
from the schema's docstrings: `python -m ringshard.config.reference > docs/config.md`.
"""
SCHEMAS = {"train": Job, "evaluate": EvaluateJob, "prepare": PrepareJob, "preflight": PreflightJob}


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
            sections.append(_section(title, kind, _rows(f"{field.name}.", kind)))
    sections += [_other_job(name, kind) for name, kind in SCHEMAS.items() if kind is not Job]
    return "\n".join(sections)


def _other_job(name: str, kind: type) -> str:
    """The keys of another job; of the groups that are train.py's, the names alone."""
    hints, train = get_type_hints(kind), get_type_hints(Job)
    shared = [key for key, hint in hints.items() if train.get(key) is hint]
    rows = (row for row in _rows("", kind) if row[0].strip("`").split(".")[0] not in shared)
    groups = ", ".join(f"`{key}`" for key in shared)
    return _section(f"jobs/{name}.py", kind, rows, f" The groups {groups} are those above.")


def _section(title: str, kind: type, rows: Iterable[tuple[str, ...]], more: str = "") -> str:
    """A table of keys, those of the groups inside a group too."""
    lines = [f"## {title}", "", (inspect.getdoc(kind) or "") + more, ""]
    lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, ""])


def _rows(prefix: str, kind: type) -> Iterator[tuple[str, str, str, str]]:
    hints, texts = get_type_hints(kind), documented(kind)
    for field in fields(kind):
        hint = hints[field.name]
        key = f"{prefix}{field.name}"
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _rows(f"{key}.", hint)
            continue
        yield f"`{key}`", _type(hint), _default(field), texts[field.name]
        for part in get_args(hint):
            if isinstance(part, type) and is_dataclass(part):
                yield from _rows(f"{key}.NAME.", part)


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
