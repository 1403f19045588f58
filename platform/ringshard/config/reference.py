"""docs/config.md from the schema: `python -m ringshard.config.reference > docs/config.md`."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any, get_args, get_type_hints

from ringshard.config.schema.job import Job
from ringshard.config.schema.optimizer import OPTIMIZERS
from ringshard.config.schema.schedule import SCHEDULES

_HEAD = """# Configuration

Every key of a job. `python jobs/train.py --cfg job` prints the values of a command line;
`group=option` chooses a file of `conf/group/`, `key=value` sets a single key. This page is made from the
schema's docstrings: `python -m ringshard.config.reference > docs/config.md`.
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
                    found[field.target.id] = str(text.value)
    return found


def reference() -> str:
    """The whole page as Markdown."""
    hints = get_type_hints(Job)
    sections = [_HEAD]
    for field in fields(Job):
        kinds = {"optimizer": OPTIMIZERS, "schedule": SCHEDULES}.get(field.name)
        for name, kind in (kinds or {"": hints[field.name]}).items():  # type: ignore[attr-defined]
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
        if is_dataclass(hint):
            yield from _rows(key, hint)
            continue
        yield f"`{key}`", _type(hint), _default(field), texts[field.name]
        inner = [part for part in get_args(hint) if is_dataclass(part)]
        for part in inner:
            yield from _rows(f"{key}.NAME", part)  # type: ignore[arg-type]  # a dataclass


def _type(hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(member.name for member in hint)
    named = getattr(hint, "__name__", None) if not get_args(hint) else None
    text = (named or str(hint)).replace("typing.", "").replace("NoneType", "null")
    return text.split(".")[-1].rstrip("]") if "schema" in text else text.replace("|", "or")


def _default(field: "Field[Any]") -> str:
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    value = value.name if isinstance(value, Enum) else value
    if value == "???":
        return "set by conf"
    shown = {None: "null", True: "true", False: "false"} if not isinstance(value, dict | list) else {}
    return f"`{shown.get(value, value)}`" if isinstance(value, bool | None) else f"`{value}`"


if __name__ == "__main__":
    print(reference(), end="")
