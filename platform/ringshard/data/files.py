"""Files of a corpus: which ones, what is in them, and whether they have changed."""

import codecs
import gzip
import io
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import xxhash
import zstandard

from ringshard.errors import ConfigError

_CHUNK = 1 << 18  # bytes decoded at a time
_HASHED = 4 << 30  # bytes up to which a corpus is hashed whole: some seconds

RECORDS = (".jsonl", ".parquet")
_COMPRESSED = (".gz", ".zst")


def found(pattern: str, key: str) -> list[Path]:
    """The files that a path, a folder (all in it but hidden ones) or a glob stands for, sorted."""
    path = Path(pattern).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        files = [file for file in path.rglob("*") if not _hidden(file.relative_to(path))]
    else:
        files = list(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    files = sorted(file for file in files if file.is_file())
    if not files:
        what = "is a folder without files" if path.is_dir() else "matches no file"
        raise ConfigError(f"{key}={pattern} {what}: give a file, a folder or a glob that exists")
    return files


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def form(path: Path) -> str:
    """The suffix that says how a file is read, without that of its compression."""
    return Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix


def fingerprint(files: list[Path]) -> list[list[str]]:
    """What tells these files from others: form and content of each, wherever they lie.

    Of more than 4 GiB together, only both ends, the size and the time of change are looked at.
    """
    whole = sum(file.stat().st_size for file in files) <= _HASHED
    return [["".join(file.suffixes[-2:]), _digest(file, whole)] for file in files]


def _digest(path: Path, whole: bool) -> str:
    state, digest = path.stat(), xxhash.xxh3_128()
    with path.open("rb") as file:
        if not whole:
            digest.update(f"{state.st_size} {state.st_mtime_ns}".encode() + file.read(_CHUNK))
            file.seek(max(0, state.st_size - _CHUNK))
        while block := file.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The decompressed bytes of a file; raises ConfigError where they are damaged."""
    try:
        with path.open("rb") as raw:
            yield _decompressed(raw, path.suffix)
    except (gzip.BadGzipFile, zlib.error, EOFError, zstandard.ZstdError) as error:
        raise ConfigError(
            f"{path} is no intact {path.suffix} file ({error}): compress it again"
        ) from error


def _decompressed(raw: IO[bytes], suffix: str) -> IO[bytes]:
    if suffix == ".gz":
        return cast(IO[bytes], gzip.open(raw))
    if suffix == ".zst":
        return io.BufferedReader(_Stream(_frames(raw)), _CHUNK)
    return raw


def _frames(raw: IO[bytes]) -> Iterator[bytes]:
    """The content of zstd frames; the library's own reader takes one cut short for whole."""
    frame = None
    while block := raw.read(_CHUNK):
        while block:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(block)
            block = frame.unused_data
            frame = None if frame.eof else frame
    if frame:
        raise EOFError("it is cut short")


class _Stream(io.RawIOBase):
    """Blocks of bytes as a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._rest = blocks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = block
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


@contextmanager
def seekable(path: Path) -> Iterator[Any]:
    """A file that can be read at any position; a compressed one is unpacked to a temporary file."""
    with opened(path) as file:
        if path.suffix not in _COMPRESSED:
            yield file
            return
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(file, copy)
            copy.seek(0)
            yield copy


def text(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """The text of a file in pieces of about 256 KiB that end with a line where there is one."""
    rest = ""
    for chunk in _decoded(path, encoding):
        cut = chunk.rfind("\n") + 1
        if cut:
            yield rest + chunk[:cut]
            rest = chunk[cut:]
        else:
            yield from filter(None, [rest])
            rest = chunk
    yield from filter(None, [rest])


def _decoded(path: Path, encoding: str) -> Iterator[str]:
    decoder, offset = codecs.getincrementaldecoder(encoding)(), 0
    with opened(path) as file:
        while True:
            block = file.read(_CHUNK)
            try:
                yield decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                held = len(error.object) - len(block)  # bytes kept back from the block before
                raise ConfigError(
                    f"{path} is no {encoding} text: byte {offset - held + error.start} is "
                    f"0x{error.object[error.start]:02x}, convert the file or leave it out"
                ) from error
            if not block:
                return
            offset += len(block)
