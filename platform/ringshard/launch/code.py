"""Which code an attempt ran: commit, uncommitted changes, package versions, machine."""

import platform
import socket
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import ringshard
from ringshard.config.schema.job import User
from ringshard.files import write_json, write_whole


@dataclass(frozen=True)
class Code:
    """What code.json tells, and the differences that lie beside it."""

    told: dict[str, Any]
    differences: dict[str, str]
    """File name -> text."""

    def record(self, folder: Path) -> None:
        """Writes code.json, and code.diff beside it where a work tree differs from its commit."""
        for name, text in self.differences.items():
            write_whole(folder / name, text)
        write_json(folder / "code.json", self.told)


def code_of(user: User) -> Code:
    """The code as it lies there now; the environment is left out, it holds secrets."""
    sources = {"ringshard": Path(ringshard.__file__).resolve().parent}
    if user.modules:
        sources["user"] = Path(user.path)
    differences: dict[str, str] = {}
    trees = {name: _tree(name, source, differences) for name, source in sources.items()}
    told = {
        "git": trees,
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "host": socket.gethostname(),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": _packages(),
    }
    return Code(told, differences)


@cache
def _packages() -> dict[str, str]:
    found = ((each.metadata["Name"], each.version) for each in distributions())
    return dict(sorted(found))


def _tree(name: str, source: Path, differences: dict[str, str]) -> dict[str, Any] | None:
    """Commit and dirt of the work tree that a folder lies in, whose difference is added to
    `differences`; None outside of git."""
    commit = _git(source, "rev-parse", "HEAD")
    if commit is None:
        return None
    root = Path(_git(source, "rev-parse", "--show-toplevel") or source)
    difference = _git(root, "diff", "HEAD", "--submodule=diff") or ""
    untracked = (_git(root, "ls-files", "--others", "--exclude-standard") or "").split("\n")
    path = None
    if difference:
        path = "code.diff" if name == "ringshard" else f"code-{name}.diff"
        differences[path] = difference + "\n"
    untracked = [file for file in untracked if file]
    dirty = bool(difference or untracked)
    return {"commit": commit, "dirty": dirty, "diff": path, "untracked": untracked[:100]}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", folder, *arguments], capture_output=True, text=True, errors="replace"
        )
    except FileNotFoundError:
        return None
    return answer.stdout.rstrip("\n") if answer.returncode == 0 else None
