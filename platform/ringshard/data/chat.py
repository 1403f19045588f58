"""Conversations as text of which only what the assistant says is learned."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ringshard.data.documents import Piece
from ringshard.errors import ConfigError

Messages = list[dict[str, Any]]
Template = Callable[[Messages, bool], str]
"""Text of a conversation; True: with what invites the assistant to speak at its end."""


def plain(messages: Messages, invite: bool) -> str:
    """The template of tokenizers that have none of their own: <|role|>, the content, <|end|>."""
    turns = [f"<|{turn['role']}|>\n{turn['content']}<|end|>\n" for turn in messages]
    return "".join(turns) + ("<|assistant|>\n" if invite else "")


def template(folder: Path | None) -> Template:
    """The chat template of a tokenizer's folder if it has one (by transformers), else `plain`."""
    if folder is None or not has_template(folder):
        return plain
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)

    def rendered(messages: Messages, invite: bool) -> str:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=invite)
        return str(text)

    return rendered


def has_template(folder: Path) -> bool:
    """Whether a tokenizer's folder brings a chat template."""
    config = folder / "tokenizer_config.json"
    return (folder / "chat_template.jinja").is_file() or (
        config.is_file() and '"chat_template"' in config.read_text(encoding="utf-8")
    )


def pieces(messages: Messages, template: Template, where: str) -> Iterator[Piece]:
    """A conversation; of it are learned the assistant's turns, each with the mark of its end."""
    text, done = template(messages, False), 0
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        start, stop = _turn(text, messages[: number + 1], template)
        if start < done or stop > len(text):
            raise ConfigError(
                f"{where}: the chat template does not keep what the assistant says in message "
                f"{number} after what precedes it: use a tokenizer whose template does"
            )
        yield Piece(text[done:start], learned=False, ends=False)
        yield Piece(text[start:stop], ends=False)
        done = stop
    yield Piece(text[done:], learned=False)


def _turn(text: str, messages: Messages, template: Template) -> tuple[int, int]:
    """Where the last of these messages, the assistant's, is in the whole text; (-1, -1): nowhere.

    A template may show a turn otherwise once others follow (Qwen3 drops the thoughts of earlier
    ones), so only what precedes the turn and the words themselves are looked for in the whole text.
    """
    invited, so_far = template(messages[:-1], True), template(messages, False)
    words = messages[-1]["content"].strip()
    start = len(invited) if text.startswith(invited) else -1
    found = text.find(words, start) if start >= 0 else -1
    mark = so_far[so_far.rfind(words) + len(words) :].rstrip()
    stop = found + len(words) + len(mark)
    return (start, stop) if found >= 0 and text[:stop].endswith(mark) else (-1, -1)
