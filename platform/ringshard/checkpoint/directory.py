"""The folder of a run's checkpoints: what is committed, how a new one gets there, how old ones go.

A checkpoint is written to `.tmp-…` and renamed to `step-00001000`: the rename is the commit. So
what a killed save leaves behind is never listed, and what is listed is never written to again.
"""

import fcntl
import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from ringshard.checkpoint.manifest import MANIFEST, DamagedError, Manifest
from ringshard.errors import ConfigError
from ringshard.files import sync, write_whole

METADATA = ".metadata"
"""Of torch.distributed.checkpoint."""
TRAIN_STATE = "train_state.json"
"""The position of the run."""
PINS = "pins"
"""Folder of files, one for each reason, that hold the name of a checkpoint to be kept."""


class RemovedError(ConfigError):
    """A checkpoint has been removed before it could be read."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(f"checkpoint {checkpoint} has just been removed: take another one")


def committed(root: Path) -> dict[int, Path]:
    """The complete checkpoints in `root` by their step, oldest first; none where there is no such
    folder."""
    folders = sorted(root.iterdir()) if root.is_dir() else []
    steps = [(re.fullmatch(r"step-(\d{8})", folder.name), folder) for folder in folders]
    return {int(step[1]): folder for step, folder in steps if step and is_complete(folder)}


def is_complete(checkpoint: Path) -> bool:
    """Whether the folder has what only a finished save leaves."""
    return (checkpoint / MANIFEST).is_file()


def of_step(root: Path, step: int) -> Path:
    """Where the checkpoint after `step` steps lies."""
    return root / f"step-{step:08d}"


def begin(root: Path, step: int) -> Path | None:
    """A new folder to write the checkpoint to, or None where that step is committed already."""
    if is_complete(of_step(root, step)):
        return None
    unfinished = root / f".tmp-{of_step(root, step).name}-{uuid4().hex}"
    unfinished.mkdir(parents=True)
    return unfinished


def commit(unfinished: Path, step: int) -> Path:
    """Makes the folder a checkpoint that survives a loss of power."""
    root, target = unfinished.parent, of_step(unfinished.parent, step)
    # torch syncs .metadata before its buffer is flushed, and never the folder.
    for path in (*unfinished.iterdir(), unfinished):
        sync(path)
    if target.exists():  # not complete, or `begin` would have seen it
        _take_off(target, ".trash")
    unfinished.rename(target)
    sync(root)
    return target


def prune(root: Path, newest: Path, keep: int, keep_every: int) -> None:
    """Removes what is older than the newest `keep` whole ones (0: all stay), and what killed saves
    and removals have left; every `keep_every`-th step, pinned ones and those being read stay."""
    pinned, whole = set(pins(root).values()), 0
    for step, checkpoint in reversed(committed(root).items()) if keep else ():
        if whole < keep:
            whole += _is_whole(checkpoint)
            continue
        stays = checkpoint.name in pinned or (keep_every and step % keep_every == 0)
        if checkpoint != newest and not stays:
            _remove_unless_read(checkpoint)
    remove_leftovers(root)


def _is_whole(checkpoint: Path) -> bool:
    """Whether all its files are there, as long as they were written."""
    try:
        Manifest.sized(checkpoint)
    except DamagedError:
        return False
    return True


def remove_leftovers(root: Path) -> None:
    """Removes what killed saves and removals have left; while nothing is being written."""
    for leftover in (*root.glob(".trash-*"), *root.glob(".tmp-*")):
        shutil.rmtree(leftover, ignore_errors=True)


def pin(checkpoint: Path, reason: str) -> None:
    """Keeps a checkpoint as long as no other one is pinned for the same reason."""
    (checkpoint.parent / PINS).mkdir(exist_ok=True)
    write_whole(checkpoint.parent / PINS / reason, checkpoint.name)


def unpin(root: Path, reason: str) -> None:
    """Ends what `pin` began."""
    (root / PINS / reason).unlink()


def pins(root: Path) -> dict[str, str]:
    """Names of checkpoints by the reason they are kept for."""
    found = {}
    for file in (root / PINS).iterdir() if (root / PINS).is_dir() else ():
        if file.name[0] != ".":
            with suppress(FileNotFoundError):  # unpinned meanwhile
                found[file.name] = file.read_text(encoding="utf-8")
    return found


def named(root: Path, name: str) -> Path | None:
    """The complete checkpoint of a step, or one that is pinned for that reason."""
    known = committed(root)
    if name.isdecimal():
        return known.get(int(name))
    pinned = pins(root).get(name)
    return next((path for path in known.values() if path.name == pinned), None)


def names(root: Path) -> list[str]:
    """What `named` knows."""
    return [*map(str, committed(root)), *sorted(pins(root))]


def reject(checkpoint: Path, why: str) -> None:
    """Takes a damaged checkpoint off the list, and records it; its files stay."""
    event = {"time": time.time(), "checkpoint": checkpoint.name, "rejected": why}
    with (checkpoint.parent / "events.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")
    _take_off(checkpoint, "damaged")


@contextmanager
def reading(checkpoint: Path) -> Iterator[None]:
    """Nobody removes the checkpoint meanwhile; raises RemovedError where somebody just has."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context((checkpoint / MANIFEST).open("rb"))
        except FileNotFoundError as error:
            raise RemovedError(checkpoint) from error
        fcntl.flock(file, fcntl.LOCK_SH)
        if not is_complete(checkpoint):
            raise RemovedError(checkpoint)
        yield


def _remove_unless_read(checkpoint: Path) -> None:
    # NFS locks what may be written, and another user's checkpoint may not be.
    with suppress(BlockingIOError, PermissionError), (checkpoint / MANIFEST).open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _take_off(checkpoint, ".trash")


def _take_off(checkpoint: Path, what: str) -> None:
    """Takes a checkpoint off the list at once; what is trash `prune` removes."""
    checkpoint.rename(checkpoint.parent / f"{what}-{checkpoint.name}-{uuid4().hex}")
