"""Small texts of an attempt that MLflow keeps a copy of: what was run, with which code, where."""

import re
from collections.abc import Iterator
from pathlib import Path

from ringshard.config.secrets import is_secret

_FILES = ("job.yaml", "overrides.json", "code.json", "code*.diff", "environment.json")
_MOST = 2**20
"""Longest text [characters]; the rest is in the run directory."""
_WORDS = (r"[^\s'\"]+", r"[^\s'\"=:,;(){}\[\]]+")
"""A secret may stand alone, or in an assignment."""
_NAMED = re.compile(
    r"(\w*(?:token|secret|passw(?:or)?d|passphrase|credential|api_?key)\w*['\"]?\s*[:=]\s*)"
    r"(['\"])[^'\"\s]{6,}\2",
    re.I,
)


def attachments(folder: Path) -> Iterator[Path]:
    """The files in the folder of an attempt."""
    for pattern in _FILES:
        yield from sorted(folder.glob(pattern))


def readable(file: Path) -> str:
    """A file's text, without what looks like a secret, and not too long."""
    text = without_secrets(file.read_text(encoding="utf-8", errors="replace"))
    left = len(text) - _MOST
    return text if left <= 0 else f"{text[:_MOST]}\n[{left} characters more in {file}]\n"


def without_secrets(text: str) -> str:
    """A text with `[secret]` in place of what looks like a password or a token."""
    for words in _WORDS:
        text = re.sub(words, lambda word: "[secret]" if is_secret(word[0]) else word[0], text)
    return _NAMED.sub(r"\1\2[secret]\2", text)
