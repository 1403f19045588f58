"""The code of a job as it lay there when it was submitted, below the output root.

`ROOT/snapshots/HASH/` holds Ringshard's package under `platform` and the user's modules under
`user`; equal code is kept once.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ringshard
from ringshard.config.schema.job import User
from ringshard.config.schema.launcher import Snapshot
from ringshard.errors import ConfigError
from ringshard.files import whole_folder

_SUBMODULE = "160000 "
"""How git lists one."""
_CODE = (".py", ".yaml", ".json", ".toml", ".txt", ".cpp", ".cu", ".h")
"""What counts as code in a folder that is not under git."""


@dataclass(frozen=True)
class Frozen:
    """Where the nodes find the code; None: where it lies."""

    source: Path | None = None
    """Folder that Ringshard is imported from."""
    user: Path | None = None
    """In place of user.path."""


def snapshot(kind: Snapshot, user: User, root: Path, write: bool = True) -> Frozen:
    """Copies what `kind` says, if that code is not there yet; raises ConfigError for git where
    the user's modules are not under it. write=False: only says where it would lie."""
    if kind is Snapshot.none:
        return Frozen()
    package = Path(ringshard.__file__).parent
    # An installed package lies outside of git, and is copied as it is.
    ours = _files(package, kind if _git(package, "--cached") else Snapshot.copy)
    trees = {"platform/ringshard": (package, ours)}
    own = Path(user.path)
    is_frozen = own.is_relative_to(root / "snapshots")  # of a run that goes on
    if user.modules and not is_frozen:
        trees["user"] = (own, [file for file in _files(own, kind) if _is_code(own, file, root)])
    home = root / "snapshots" / _digest(trees)
    if write and not home.exists():
        with whole_folder(home) as new:
            for name, (folder, files) in trees.items():
                for file in files:
                    (new / name / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(folder / file, new / name / file)
    theirs = own if is_frozen else home / "user"
    return Frozen(home / "platform", theirs if user.modules else None)


def _files(folder: Path, kind: Snapshot) -> list[Path]:
    """Relative paths of what is frozen: with uncommitted changes, and with submodules."""
    tracked = _git(folder, "--cached", "--recurse-submodules")
    if tracked is None and kind is Snapshot.git:
        raise ConfigError(
            f"launcher.snapshot=git: {folder} is not in a git work tree, use launcher.snapshot=copy"
        )
    if tracked is None:
        found = (file.relative_to(folder) for file in sorted(folder.rglob("*")))
        return [file for file in found if _plain(folder, file)]
    others = _others(folder) if kind is Snapshot.copy else []
    return [file for file in sorted({*tracked, *others}) if (folder / file).is_file()]


def _others(folder: Path) -> list[Path]:
    """Relative paths of what is not committed, also in submodules and in repositories of which git
    knows nothing but the folder."""
    found = _git(folder, "--others", "--exclude-standard") or []
    inner = [path for path in found if (folder / path / ".git").exists()]
    for path in inner:
        found += [path / file for file in _git(folder / path, "--cached") or []]
    staged = map(str, _git(folder, "--stage") or [])
    inner += [Path(line.split("\t", 1)[1]) for line in staged if line.startswith(_SUBMODULE)]
    for path in inner:
        if (folder / path / ".git").exists():
            found += [path / file for file in _others(folder / path)]
    return found


def _plain(folder: Path, file: Path) -> bool:
    hidden = any(part.startswith(".") or part == "__pycache__" for part in file.parts)
    return not hidden and file.suffix in _CODE and (folder / file).is_file()


def _is_code(folder: Path, file: Path, root: Path) -> bool:
    """user.path may be a whole project, with data and the runs themselves in it."""
    return file.suffix in _CODE and not (folder / file).is_relative_to(root)


def _git(folder: Path, *options: str) -> list[Path] | None:
    command = ["git", "-C", str(folder), "ls-files", "-z", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    names = [Path(name) for name in done.stdout.split("\0") if name]
    return names or None  # an installed package may lie in a folder that git ignores


def _digest(trees: Mapping[str, tuple[Path, list[Path]]]) -> str:
    digest = hashlib.sha256()
    for name, (folder, files) in sorted(trees.items()):
        for file in files:
            digest.update(f"{name}/{file}\0".encode())
            digest.update(hashlib.sha256((folder / file).read_bytes()).digest())
    return digest.hexdigest()[:12]
