#!/usr/bin/env python
"""Benchmarks: `python jobs/bench.py NAME [--log]`; what is compared is measured in one run.

A benchmark is a module of jobs/benchmarks whose `run()` returns rows. --log appends them to
LOG.md, with the commit, the command, the machine and the date.
"""

import datetime
import importlib
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))  # its forked ranks
NAMES = sorted(
    path.stem
    for path in (ROOT / "jobs/benchmarks").glob("*.py")
    if "\ndef run(" in path.read_text(encoding="utf-8")
)


def main(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(NAMES)}")],
    log: Annotated[bool, typer.Option("--log", help="Append the table to LOG.md.")] = False,
) -> None:
    """Run one benchmark and print its table."""
    if name not in NAMES:
        print(f"benchmark {name} is unknown: choose one of {', '.join(NAMES)}", file=sys.stderr)
        raise SystemExit(2)
    module = importlib.import_module(f"benchmarks.{name}")
    rows = module.run()
    _print(name, rows)
    if log:
        with (ROOT / "LOG.md").open("a", encoding="utf-8") as file:
            file.write(_entry(name, str(module.__doc__), rows))


def _print(name: str, rows: list[dict[str, Any]]) -> None:
    table = Table(*rows[0], title=name)
    for row in rows:
        table.add_row(*map(_text, row.values()))
    Console().print(table)


def _entry(name: str, about: str, rows: list[dict[str, Any]]) -> str:
    title = " ".join(about.partition("\n\n")[0].split())
    lines = [
        f"\n## {name}: {title}\n",
        f"`python jobs/bench.py {name}` · commit {_commit()} · {_machine()} · "
        f"{datetime.date.today().isoformat()}\n",
        _row(list(rows[0])),
        _row(["---"] * len(rows[0])),
        *(_row(map(_text, row.values())) for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _text(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _commit() -> str:
    """With a mark if the tree is another one; the log itself does not count."""
    changed = _git("status", "--porcelain", "--", ".", ":!LOG.md")
    return (_git("rev-parse", "--short", "HEAD") or "unknown") + ("-dirty" if changed else "")


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def _machine() -> str:
    import torch

    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = next(line.split(":")[1].strip() for line in info.splitlines() if "model name" in line)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return (
        f"{os.cpu_count()} × {model}, {device}, Python {platform.python_version()}, "
        f"torch {torch.__version__}"
    )


if __name__ == "__main__":
    typer.run(main)
