"""Mistakes in the `data` group that can be told without reading anything."""

import re
from collections.abc import Iterator

from ringshard.config.schema.data import Corpus, CorpusKind, Data, DocumentUnit, TokenizerKind
from ringshard.errors import ConfigError

_FIELDS = {"text_field", "prompt_field", "messages_field"}
_OPTIONS = {
    CorpusKind.python_stdlib: set[str](),
    CorpusKind.text_files: {"path", "document", "separator"} | _FIELDS,
    CorpusKind.hf_dataset: {"path", "name", "subset"} | _FIELDS,
    CorpusKind.custom: {"name", "args"} | _FIELDS,
}
_REQUIRED = {
    CorpusKind.python_stdlib: None,
    CorpusKind.text_files: "path",
    CorpusKind.hf_dataset: "path",
    CorpusKind.custom: "name",
}
_SMALLEST_BPE = 257  # all bytes and the end of text


def check(data: Data) -> None:
    """Raise ConfigError for the first mistake; nothing is read or written."""
    for mistake in _mistakes(data):
        raise ConfigError(mistake)


def _mistakes(data: Data) -> Iterator[str]:
    if not data.corpora:
        yield "data.corpora is empty: name at least one corpus, such as data=python_stdlib"
    if data.seq_len < 1:
        yield f"data.seq_len={data.seq_len} must be 1 or more"
    share = data.validation_share
    if not 0 < share < 1:
        yield f"data.validation_share={share} must lie between 0 and 1, such as 0.05"
    yield from _idle_shorthands(data)
    for name, corpus in data.corpora.items():
        if not re.fullmatch(r"[\w-]+", name):
            yield f"data.corpora.{name} names files: use letters, digits, _ and - alone"
        yield from _corpus_mistakes(corpus, f"data.corpora.{name}")
    yield from _tokenizer_mistakes(data)


def _idle_shorthands(data: Data) -> Iterator[str]:
    for name in ("path", "document", "separator"):
        value = getattr(data, name)
        taken = any(getattr(corpus, name) == value for corpus in data.corpora.values())
        if value != getattr(Data, name) and not taken:
            yield (
                f"data.{name}={_shown(value)} has no effect: no corpus of data.corpora takes it as"
                f" its {name}"
            )


def _corpus_mistakes(corpus: Corpus, key: str) -> Iterator[str]:
    plain, kind = Corpus(), corpus.kind
    for option in ("path", "name", "subset", "document", "separator", *sorted(_FIELDS), "args"):
        value = getattr(corpus, option)
        if value != getattr(plain, option) and option not in _OPTIONS[kind]:
            yield f"{key}.{option}={_shown(value)} has no effect with kind={kind.name}: remove it"
    required = _REQUIRED[kind]
    if required and not getattr(corpus, required):
        hint = (
            ", such as data.path=FOLDER where the group takes it from there"
            if required == "path"
            else ""
        )
        yield f"{key}.{required} is missing: kind={kind.name} needs it{hint}"
    if not corpus.weight > 0 or corpus.weight == float("inf"):
        yield f"{key}.weight={corpus.weight} must be above 0: remove the corpus to leave it out"
    if (corpus.document is DocumentUnit.separator) != bool(corpus.separator):
        yield (
            f"{key}.separator={_shown(corpus.separator)} and "
            f"document={corpus.document.name} do not go together: set both or neither"
        )
    if corpus.messages_field and (corpus.text_field or corpus.prompt_field):
        yield (
            f"{key}.messages_field={corpus.messages_field} replaces text_field and prompt_field: "
            "remove these two"
        )


def _tokenizer_mistakes(data: Data) -> Iterator[str]:
    tokenizer, kind = data.tokenizer, data.tokenizer.kind
    needs = {TokenizerKind.directory: "path", TokenizerKind.bpe: "vocab_size"}.get(kind)
    optional = "end_token" if kind is TokenizerKind.directory else None
    for option in ("path", "vocab_size", "end_token"):
        value = getattr(tokenizer, option)
        if option == needs and value is None:
            yield f"data.tokenizer.{option} is missing: kind={kind.name} needs it"
        if value is not None and option not in (needs, optional):
            yield f"data.tokenizer.{option}={value} has no effect with kind={kind.name}: remove it"
    if kind is TokenizerKind.bpe and (tokenizer.vocab_size or 0) < _SMALLEST_BPE:
        yield (
            f"data.tokenizer.vocab_size={tokenizer.vocab_size} is too small: "
            f"the 256 bytes and the end of text alone need {_SMALLEST_BPE}"
        )


def _shown(value: object) -> object:
    return value.name if isinstance(value, DocumentUnit) else value
