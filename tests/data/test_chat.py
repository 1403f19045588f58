"""Of a conversation, exactly what the assistant says is learned."""

import json
from pathlib import Path

import pytest

from ringshard.data import chat, subword
from ringshard.errors import ConfigError

TALK = [
    {"role": "user", "content": "Two and two?"},
    {"role": "assistant", "content": "Four."},
    {"role": "user", "content": "And four?"},
    {"role": "assistant", "content": "Eight."},
]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# As Qwen3: only the last turn shows (here empty) thoughts.
THINKING = CHATML.replace(
    "{{ m.content }}",
    "{% if loop.last and m.role == 'assistant' %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}",
)
SHOUTING = CHATML.replace("{{ m.content }}", "{{ m.content | upper }}")


def folder_with(template: str, folder: Path) -> Path:
    subword.train(iter(["some text "]), 260).save(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
    return folder


def learned(template: chat.Template, messages: chat.Messages = TALK) -> list[str]:
    pieces = list(chat.pieces(messages, template, "here"))
    assert "".join(piece.text for piece in pieces) == template(messages, False)
    assert [piece.ends for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    return [piece.text for piece in pieces if piece.learned]


def test_plain_template_where_the_tokenizer_has_none() -> None:
    assert chat.plain(TALK[:1], True) == "<|user|>\nTwo and two?<|end|>\n<|assistant|>\n"
    assert learned(chat.template(None)) == ["Four.<|end|>", "Eight.<|end|>"]


def test_template_of_the_tokenizer(tmp_path: Path) -> None:
    template = chat.template(folder_with(CHATML, tmp_path))
    assert learned(template) == ["Four.<|im_end|>", "Eight.<|im_end|>"]


def test_template_that_hides_earlier_thoughts(tmp_path: Path) -> None:
    template = chat.template(folder_with(THINKING, tmp_path))
    assert learned(template) == ["Four.<|im_end|>", "<think>\n\n</think>\n\nEight.<|im_end|>"]


def test_assistant_that_repeats_the_user_is_found_where_it_speaks() -> None:
    echo = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}] * 2
    assert learned(chat.plain, echo) == ["x<|end|>", "x<|end|>"]


def test_template_that_changes_words_is_refused(tmp_path: Path) -> None:
    template = chat.template(folder_with(SHOUTING, tmp_path))
    with pytest.raises(ConfigError, match=r"^here: the chat template does not keep"):
        learned(template)


def test_conversation_without_assistant_teaches_nothing() -> None:
    assert learned(chat.plain, TALK[:1]) == []
