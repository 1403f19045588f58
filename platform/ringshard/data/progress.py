"""How far a preparation is: a live line on a terminal, one plain line when done elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status


@contextmanager
def shown(what: str) -> Iterator[Callable[[int, int], None]]:
    """Tell stderr about work on `what`; the function given takes new documents and new tokens."""
    documents, tokens, begun = 0, 0, time.monotonic()

    def line() -> str:
        seconds = max(time.monotonic() - begun, 1e-9)
        rate = f"{tokens / seconds / 1e6:.1f} M tokens/s"
        return f"{what}: {documents:,} documents, {tokens:,} tokens ({seconds:.1f} s, {rate})"

    def advance(new_documents: int, new_tokens: int) -> None:
        nonlocal documents, tokens
        documents, tokens = documents + new_documents, tokens + new_tokens
        status.update(line())

    with Status(what, console=Console(stderr=True)) as status:  # draws on a terminal only
        yield advance
    print(line(), file=sys.stderr)
