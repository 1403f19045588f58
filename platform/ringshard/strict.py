"""Numbers that JSON does not know: null in the file, and beside it a word for each."""

import math
from typing import Any

WORDS = "not_finite"
"""Key of the words, nan, inf or -inf, which stand where the numbers would."""


def strict(told: dict[str, Any]) -> dict[str, Any]:
    """The same for any JSON reader."""
    words, cleaned = _words(told), _clean(told)
    return dict(cleaned) | ({WORDS: words} if words else {})


def restored(told: dict[str, Any]) -> dict[str, Any]:
    """What `strict` was given."""
    _put_back(told, told.pop(WORDS, {}))
    return told


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _clean(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_clean(inner) for inner in value]
    return None if _is_broken(value) else value


def _words(value: dict[str, Any]) -> dict[str, Any]:
    found = {
        key: _words(inner) if isinstance(inner, dict) else str(inner)
        for key, inner in value.items()
        if isinstance(inner, dict) or _is_broken(inner)
    }
    return {key: words for key, words in found.items() if words}


def _put_back(told: dict[str, Any], words: dict[str, Any]) -> None:
    for key, word in words.items():
        if isinstance(word, dict):
            _put_back(told[key], word)
        else:
            told[key] = float(word)


def _is_broken(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
