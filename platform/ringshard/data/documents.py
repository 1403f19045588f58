"""Documents as streams of pieces, so that a long one is never in memory whole."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_LONGEST = 1 << 18  # characters of a document held at a time


class Piece(NamedTuple):
    """Some text of a document; the next piece goes on with it unless this one ends it."""

    text: str
    learned: bool = True
    """Whether its tokens are targets."""
    ends: bool = True


def whole(chunks: Iterable[str]) -> Iterator[Piece]:
    """All chunks as one document."""
    for chunk in chunks:
        yield Piece(chunk, ends=False)
    yield Piece("")


def separated(chunks: Iterable[str], separator: str) -> Iterator[Piece]:
    """The documents between the separators."""
    rest = ""
    for chunk in chunks:
        *documents, rest = (rest + chunk).split(separator)
        yield from map(Piece, documents)
        if len(rest) > _LONGEST:
            cut = len(rest) - len(separator) + 1  # a separator may have begun
            yield Piece(rest[:cut], ends=False)
            rest = rest[cut:]
    yield Piece(rest)


def filled(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The same documents without those that have no text."""
    begun = False
    for piece in pieces:
        begun = begun or bool(piece.text)
        if begun:
            yield piece
        begun = begun and not piece.ends
