"""What turns text into token ids and back: the two that need no library, and how all are kept."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ringshard.errors import ConfigError

END = "<|endoftext|>"
_FILE = "units.json"

Ids = NDArray[np.integer[Any]]


class Tokenizer(Protocol):
    """Token ids are 0 … vocab_size - 1."""

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        ...

    @property
    def end(self) -> int | None:
        """The id that ends a document; None: no document follows another."""
        ...

    def encode(self, texts: Sequence[str], continued: Sequence[bool]) -> tuple[Ids, Ids]:
        """The ids of all texts end to end, and how many each has; some continue the one before."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids; broken characters are shown as �."""
        ...

    def save(self, folder: Path) -> None:
        """Write what `load` reads."""
        ...


class Bytes:
    """The bytes of UTF-8, and one id more that ends a document."""

    vocab_size = 257
    end = 256

    def encode(self, texts: Sequence[str], continued: Sequence[bool] = ()) -> tuple[Ids, Ids]:
        """See Tokenizer."""
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        ids = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        return ids, np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))

    def decode(self, ids: Sequence[int]) -> str:
        """See Tokenizer."""
        raw = b"".join(END.encode() if number == self.end else bytes([number]) for number in ids)
        return raw.decode("utf-8", "replace")

    def save(self, folder: Path) -> None:
        """See Tokenizer."""
        _write(folder, {"kind": "bytes"})


class Characters:
    """The characters of a corpus by code point; and an end of document if there are several."""

    def __init__(self, alphabet: str, several: bool) -> None:
        self._alphabet = alphabet
        self.end = len(alphabet) if several else None
        self.vocab_size = len(alphabet) + several
        self._ids = np.full(max(map(ord, alphabet)) + 1, -1, dtype=np.int64)
        self._ids[_code_points(alphabet)] = np.arange(len(alphabet))

    def encode(self, texts: Sequence[str], continued: Sequence[bool] = ()) -> tuple[Ids, Ids]:
        """See Tokenizer; raises ConfigError for a character that the corpus does not have."""
        points = _code_points("".join(texts))
        ids = np.full(points.shape, -1, dtype=np.int64)
        known = points < len(self._ids)
        ids[known] = self._ids[points[known]]
        if (ids < 0).any():
            stranger = chr(points[ids < 0][0])
            raise ConfigError(
                f"data.tokenizer.kind=characters has no id for {stranger!r}, which was not in the "
                "text it was made of: leave it out, or train with data.tokenizer.kind=bytes"
            )
        return ids, np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))

    def decode(self, ids: Sequence[int]) -> str:
        """See Tokenizer."""
        return "".join(END if number == self.end else self._alphabet[number] for number in ids)

    def save(self, folder: Path) -> None:
        """See Tokenizer."""
        several = self.end is not None
        _write(folder, {"kind": "characters", "alphabet": self._alphabet, "several": several})


def characters(texts: Iterable[tuple[str, bool]]) -> Characters:
    """The tokenizer of the characters of these pieces, each with whether it ends a document."""
    alphabet: set[str] = set()
    documents = 0
    for text, ends in texts:
        alphabet.update(text)
        documents += ends
    if not alphabet:
        raise ConfigError("data.corpora have no text: give others")
    return Characters("".join(sorted(alphabet)), several=documents > 1)


def load(folder: Path, end: str | None = None) -> Tokenizer:
    """The tokenizer of a folder: one saved here, or one of other libraries, with its end token."""
    if not (folder / _FILE).is_file():
        from ringshard.data import subword

        return subword.load(folder, end)
    kept = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    return Bytes() if kept["kind"] == "bytes" else Characters(kept["alphabet"], kept["several"])


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _write(folder: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, ensure_ascii=True, indent=1)
    (folder / _FILE).write_text(text, encoding="utf-8")
