"""What a checkpoint must consist of: every file and every stored item, with size and digest.

Standard library and xxhash alone, so that checkpoints can be listed and verified without torch.
"""

import errno
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from ringshard.errors import ConfigError

MANIFEST = "manifest.json"
FORMAT = 1
_BLOCK = 1 << 22


class DamagedError(ConfigError):
    """A checkpoint is not what was written."""


class Item(NamedTuple):
    """Bytes of one tensor, or of a rank's part of it, in a file."""

    offset: int
    length: int
    digest: str
    """xxh3-128, hexadecimal."""


class Entry(NamedTuple):
    """One file."""

    size: int
    digest: str
    """Of its bytes; of a file of items, of their digests."""
    items: list[Item]
    """Without a gap between them; none in files that hold no tensors."""

    @classmethod
    def of_items(cls, items: list[Item]) -> "Entry":
        """A file that consists of these items."""
        return cls(sum(item.length for item in items), _digest_of([i.digest for i in items]), items)


@dataclass(frozen=True)
class Manifest:
    """The last file to be written; it names all the others."""

    files: dict[str, Entry]
    about: dict[str, Any] = field(default_factory=dict)
    """What wrote it: versions, world size, and what the caller adds."""

    def write(self, checkpoint: Path) -> None:
        """Stores it in the folder `checkpoint`, with a digest of itself."""
        body = asdict(self) | {"format": FORMAT}
        whole = {"digest": _digest_of(body), "manifest": body}
        (checkpoint / MANIFEST).write_text(_text(whole), encoding="utf-8")

    @classmethod
    def read(cls, checkpoint: Path) -> "Manifest":
        """What `write` stored; raises DamagedError where it is anything else."""
        try:
            whole = json.loads((checkpoint / MANIFEST).read_bytes())
            body = whole["manifest"]
            if whole["digest"] != _digest_of(body) or body["format"] != FORMAT:
                raise ValueError("its digest is another one")
            files = {
                name: Entry(size, digest, [Item(*item) for item in items])
                for name, (size, digest, items) in body["files"].items()
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedError(f"{MANIFEST} can't be read ({error})") from error
        return cls(files, body["about"])

    @classmethod
    def sized(cls, checkpoint: Path) -> "Manifest":
        """The manifest of a checkpoint whose files are all there, as long as they were written;
        raises DamagedError."""
        found = cls.read(checkpoint)
        for name, entry in found.files.items():
            path = checkpoint / name
            if not path.is_file():
                raise DamagedError(f"{name} is missing")
            if path.stat().st_size != entry.size:
                raise DamagedError(f"{name} has {path.stat().st_size} bytes, not {entry.size}")
        return found

    @classmethod
    def verified(cls, checkpoint: Path) -> "Manifest":
        """The same where their bytes are those that were written."""
        found = cls.sized(checkpoint)
        found.check_files(checkpoint, found.files)
        return found

    def check_files(self, checkpoint: Path, names: Iterable[str]) -> None:
        """Raises DamagedError for one of these files whose bytes are others."""
        for name in names:
            entry = self.files[name]
            if entry.items:
                self.check_items(checkpoint, name, {item[:2] for item in entry.items})
                continue
            with _unreadable_is_damaged(name):
                digest = digest_of_file(checkpoint / name)
            if digest != entry.digest:
                raise DamagedError(f"{name} has other bytes than were written")

    def check_items(self, checkpoint: Path, name: str, wanted: set[tuple[int, int]]) -> None:
        """Raises DamagedError for one of the `wanted` items (offset, length) of a file whose bytes
        are others."""
        known = {item[:2]: item.digest for item in self.files[name].items}
        with _unreadable_is_damaged(name), (checkpoint / name).open("rb") as file:
            for offset, length in sorted(wanted):
                file.seek(offset)
                if known.get((offset, length)) != _digest(_blocks(file, length)):
                    raise DamagedError(f"{name} has other bytes than were written at {offset}")

    @property
    def small_files(self) -> list[str]:
        """Those that hold no tensors."""
        return [name for name, entry in self.files.items() if not entry.items]


@contextmanager
def _unreadable_is_damaged(name: str) -> Iterator[None]:
    """Raises DamagedError where the disk has lost a block; what may pass stays an OSError."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EIO:
            raise DamagedError(f"{name} can't be read ({error})") from error
        raise


def digest_of_file(path: Path) -> str:
    """xxh3-128 of a file's bytes."""
    with path.open("rb") as file:
        return _digest(_blocks(file, path.stat().st_size))


def _blocks(file: Any, length: int) -> Iterator[bytes]:
    while length > 0:
        block = file.read(min(_BLOCK, length))
        if not block:
            return
        length -= len(block)
        yield block


def _digest(blocks: Iterable[bytes]) -> str:
    hashed = xxhash.xxh3_128()
    for block in blocks:
        hashed.update(block)
    return hashed.hexdigest()


def _digest_of(body: Any) -> str:
    return xxhash.xxh3_128_hexdigest(_text(body).encode())


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
