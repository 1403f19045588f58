"""How far a preparation is: a live line on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status


@contextmanager
def shown(what: str) -> Iterator[Status]:
    """Tell stderr of work that begins: with a spinner on a terminal, else in one line."""
    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"{what} …", file=sys.stderr, flush=True)
    with console.status(what) as status:  # draws on a terminal only
        yield status


@contextmanager
def counted(what: str) -> Iterator[Callable[[int, int], None]]:
    """The same; the function given takes new documents and new tokens, all are told at the end."""
    documents, tokens, begun = 0, 0, time.monotonic()

    def line() -> str:
        seconds = max(time.monotonic() - begun, 1e-9)
        rate = f"{tokens / seconds / 1e6:.1f} M tokens/s"
        return f"{what}: {documents:,} documents, {tokens:,} tokens ({seconds:.1f} s, {rate})"

    def advance(new_documents: int, new_tokens: int) -> None:
        nonlocal documents, tokens
        documents, tokens = documents + new_documents, tokens + new_tokens
        status.update(line())

    with shown(what) as status:
        yield advance
    print(line(), file=sys.stderr, flush=True)
