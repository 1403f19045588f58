"""Small texts of an attempt that MLflow keeps a copy of: what was run, with which code, where."""

import re
from collections.abc import Iterator
from pathlib import Path

from ringshard.config.secrets import is_secret, names_secret

_FILES = ("job.yaml", "overrides.json", "code.json", "code*.diff", "environment.json")
_MOST = 2**20
"""Longest text [characters]; the rest is in the run directory."""
_WORDS = (r"[^\s'\"]+", r"[^\s'\"=:,;(){}\[\]]+")
"""A secret may stand alone, or in an assignment."""
_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----.*?(-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----|\Z)",
    re.S,
)
_ASSIGNED = re.compile(
    r"(?<![\w-])(?P<name>[\w-]{1,80})"
    r"(?P<by>['\"]?\]?[ \t]*(?::[ \t]*[\w.|\[\] ]{1,80}(?==))?[:=]+>?[ \t]*)"
    r"(?P<value>'[^'\n]{6,}'|\"[^\"\n]{6,}\"|[^\s'\"]{6,})"
)
"""A name and what it gets, quoted or not, perhaps with a type between them."""
_HARMLESS = re.compile(r"[\d._+\-e]+[,;)\]}]*|[$<].*|.*[(\[{].*", re.I)
"""Values without quotes that are numbers, other variables, or computed."""


def attachments(folder: Path) -> Iterator[Path]:
    """The files in the folder of an attempt."""
    for pattern in _FILES:
        yield from sorted(folder.glob(pattern))


def readable(file: Path) -> str:
    """A file's text, without what looks like a secret, and not too long: cut before it is searched,
    where a line ends."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        text = lines.read(_MOST + 1)
    if len(text) <= _MOST:
        return without_secrets(text)
    whole = text[: text.rfind("\n", 0, _MOST) + 1]
    return f"{without_secrets(whole)}\n[the rest is in {file}]\n"


def without_secrets(text: str) -> str:
    """A text with `[secret]` in place of what looks like a password, a token or a private key."""
    text = _KEY.sub("[secret]", text)
    for words in _WORDS:
        text = re.sub(words, lambda word: "[secret]" if is_secret(word[0]) else word[0], text)
    return "".join(_without_values(text))


def _without_values(text: str) -> Iterator[str]:
    """What a name gets may itself be a mapping: it is searched, unless it is left out."""
    place = 0
    while found := _ASSIGNED.search(text, place):
        yield text[place : found.start("value")]
        value, place = found["value"], found.start("value")
        quote = value[0] if value[0] in "'\"" else ""
        if names_secret(found["name"].replace("-", "_")) and not _is_harmless(value, quote):
            yield f"{quote}[secret]{quote}"
            place = found.end()
    yield text[place:]


def _is_harmless(value: str, quote: str) -> bool:
    return value.strip("'\"") == "[secret]" or (not quote and bool(_HARMLESS.fullmatch(value)))
