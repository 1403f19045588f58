"""Which code an attempt ran: commit, uncommitted changes, package versions, machine."""

import platform
import socket
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import ringshard
from ringshard.config.schema.job import User
from ringshard.files import write_json, write_whole


def record_code(folder: Path, user: User) -> None:
    """Writes code.json, and code.diff beside it where a work tree differs from its commit.

    The environment is left out: it holds secrets.
    """
    sources = {"ringshard": Path(ringshard.__file__).resolve().parent}
    if user.modules:
        sources["user"] = Path(user.path)
    trees = {name: _tree(name, source, folder) for name, source in sources.items()}
    write_json(
        folder / "code.json",
        {
            "git": trees,
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "host": socket.gethostname(),
            "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
            "packages": {d.name: d.version for d in sorted(distributions(), key=lambda d: d.name)},
        },
    )


def _tree(name: str, source: Path, folder: Path) -> dict[str, Any] | None:
    """Commit and dirt of the work tree that a folder lies in; None outside of git."""
    commit = _git(source, "rev-parse", "HEAD")
    if commit is None:
        return None
    root = Path(_git(source, "rev-parse", "--show-toplevel") or source)
    difference = _git(root, "diff", "HEAD") or ""
    untracked = (_git(root, "ls-files", "--others", "--exclude-standard") or "").split("\n")
    path = None
    if difference:
        path = "code.diff" if name == "ringshard" else f"code-{name}.diff"
        write_whole(folder / path, difference + "\n")
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
