"""Corpora to token stores to rows, once: `python -m ringshard.data.prepare < job.json`.

The cache holds tokenizers/, stores/ (the tokens of one corpus) and prepared/ (how a split of them
becomes rows), each folder named by a hash of all that decides its content.
"""

import json
import sys
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

from ringshard.config.schema.data import Corpus, Data
from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import build
from ringshard.data import chat, progress, rows, store, tokenizer, vocabulary
from ringshard.data.cache import built, tidied
from ringshard.data.checks import check
from ringshard.data.corpus import Source, source
from ringshard.data.rows import Part, hashed
from ringshard.errors import ConfigError
from ringshard.registry import import_user_modules

_FORMAT = 1  # raised when what lies on disk comes to mean something else


@dataclass(frozen=True)
class Prepared:
    """What came out of a preparation."""

    prepared: str
    """Folder that `Dataset` reads."""
    digest: str
    """Digest of all that decides what row k is, but the seed."""
    vocab_size: int
    """Number of token ids."""
    documents: int
    """Documents of all corpora."""
    tokens: int
    """Tokens of all corpora, ends of documents included."""
    train_rows: int
    """Rows of one epoch."""
    validation_rows: int
    """Rows set apart for validation."""
    bigram_entropy: float | None
    """H(next | previous) of the validation split [nats per token]; null: vocabulary above 4096."""


def prepare(data: Data) -> Prepared:
    """Build what is missing; raises ConfigError, and then leaves nothing half-built."""
    check(data)
    template = chat.template(vocabulary.folder(data.tokenizer))
    corpora = dict(sorted(data.corpora.items()))
    sources = {name: source(name, corpus, template) for name, corpus in corpora.items()}
    cache = Path(data.cache).expanduser().absolute()
    with tidied(cache):
        states = {name: each.fingerprint() for name, each in sources.items()}
        words = _tokenizer(cache, data, list(sources.values()), list(states.values()))
        parts = {}
        for name, corpus in corpora.items():
            folder = _store(cache, name, corpus, sources[name], states[name], words)
            parts[name] = Part(corpus.weight, folder, store.Store(folder))
        return _prepared(cache, data, parts, words)


def _tokenizer(cache: Path, data: Data, sources: list[Source], states: list[Any]) -> Path:
    """The folder of the tokenizer."""
    key = hashed(_FORMAT, vocabulary.fingerprint(data.tokenizer, states))

    def fill(folder: Path) -> None:
        pieces = chain.from_iterable(each.pieces() for each in sources)
        vocabulary.make(data.tokenizer, pieces).save(folder)

    return built(cache / "tokenizers" / key, fill)


def _store(cache: Path, name: str, corpus: Corpus, source: Source, state: Any, words: Path) -> Path:
    """The folder of a corpus's tokens."""
    options = [corpus.document.name, corpus.separator, corpus.text_field, corpus.prompt_field,
               corpus.messages_field]  # fmt: skip
    masked = bool(corpus.prompt_field or corpus.messages_field)

    def fill(folder: Path) -> None:
        with progress.shown(f"Preparing {name}") as advance:
            store.write(folder, source.pieces(), tokenizer.load(words), masked, advance)
        if not store.Store(folder).metadata["targets"]:
            nothing = "no token to learn" if masked else "no text"
            raise ConfigError(f"data.corpora.{name} has {nothing}: give another corpus")
        if source.fingerprint() != state:
            raise ConfigError(f"data.corpora.{name} changed while it was read: prepare it again")

    return built(cache / "stores" / hashed(_FORMAT, state, options, words.name), fill)


def _prepared(cache: Path, data: Data, parts: dict[str, Part], words: Path) -> Prepared:
    """The rows of all corpora."""
    digest = rows.digest(data, parts)
    key = hashed(_FORMAT, digest, words.name, [part.folder.name for part in parts.values()])
    folder = cache / "prepared" / key

    def fill(draft: Path) -> None:
        rows.write(draft, data, parts, tokenizer.load(words), words)

    metadata = json.loads((built(folder, fill) / "metadata.json").read_text(encoding="utf-8"))
    known = {field: metadata[field] for field in Prepared.__dataclass_fields__ if field in metadata}
    return Prepared(prepared=str(folder), **known)


def main() -> int:
    """Prepare the data of the job on stdin; the last line on stdout is `Prepared` as JSON."""
    job = cast(Job, build(Job, json.load(sys.stdin)))
    try:
        import_user_modules(job.user)
        print(json.dumps(asdict(prepare(job.data))))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
