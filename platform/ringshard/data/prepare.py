"""Corpora to token stores to rows, once: `python -m ringshard.data.prepare < job.json`.

The cache holds tokenizers/ (those learned from corpora), stores/ (the tokens of one corpus) and
prepared/ (how they become rows), each folder named by a hash of all that decides its content.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

from ringshard.config.schema.data import Corpus, Data
from ringshard.config.schema.data import Tokenizer as Config
from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import build as read
from ringshard.data import chat, progress, records, rows, store, vocabulary
from ringshard.data.cache import MissingError, built, present, tidied
from ringshard.data.checks import check
from ringshard.data.corpus import Source, source
from ringshard.data.documents import filled
from ringshard.data.rows import Mixture, TokenizedCorpus, hashed
from ringshard.data.store import Store
from ringshard.data.tokenizer import Tokenizer, load
from ringshard.errors import ConfigError, of_path
from ringshard.registry import import_user_modules

_FORMAT = 3  # raised when what lies on disk comes to mean something else


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
    train_padding: float
    """Share of padding among the inputs that are trained on."""
    validation_padding: float
    """Share of padding among the inputs set apart for validation."""
    bigram_entropy: float | None
    """H(next | previous) of the validation split [nats per token]; null: vocabulary above 4096."""


Build = Callable[[Path, Callable[[Path], None]], Path]
"""Given a folder and what fills it, the folder."""


class _Input(NamedTuple):
    """A corpus of the mixture, and the state in which its documents are."""

    name: str
    corpus: Corpus
    source: Source
    state: Any


def prepare(data: Data, build: Build = built) -> Prepared:
    """Build what is missing; raises ConfigError, and then leaves nothing half-built.

    What is whole stays: where rows turn out too long, the stores need not be built once more.
    build: `present` builds nothing, and raises MissingError instead.
    """
    check(data)
    inputs = _inputs(data)
    cache = Path(data.cache).expanduser().absolute()
    with tidied(cache):
        key = hashed(_FORMAT, vocabulary.fingerprint(data.tokenizer, [i.state for i in inputs]))
        tokenizer = _tokenizer(cache / "tokenizers" / key, data.tokenizer, inputs, build)
        mixture = {}
        for each in inputs:
            name = hashed(key, each.state, _reading(each))
            folder = _store(cache / "stores" / name, each, tokenizer, build)
            mixture[each.name] = TokenizedCorpus(each.corpus.weight, folder, Store(folder))
        return _prepared(cache / "prepared", data, mixture, tokenizer, key, build)


def _inputs(data: Data) -> list[_Input]:
    """All corpora by name, so that their order in a file does not matter."""
    template = chat.template(vocabulary.folder(data.tokenizer))
    sources = {name: source(name, data.corpora[name], template) for name in sorted(data.corpora)}
    return [
        _Input(name, data.corpora[name], each, each.fingerprint()) for name, each in sources.items()
    ]


def _reading(each: _Input) -> list[Any]:
    """The options that decide which text the documents of given files have."""
    corpus = each.corpus
    return [corpus.document.name, corpus.separator, records.fields(corpus)]


def _tokenizer(folder: Path, config: Config, inputs: list[_Input], build: Build) -> Tokenizer:
    """The tokenizer; what is learned from the corpora is kept in `folder`."""
    if not vocabulary.is_learned(config):
        return vocabulary.given(config)

    def fill(draft: Path) -> None:
        with progress.shown(f"Learning the tokenizer ({config.kind.name})"):
            pieces = chain.from_iterable(each.source.pieces() for each in inputs)
            vocabulary.learned(config, filled(pieces)).save(draft)

    return load(build(folder, fill))


def _store(folder: Path, each: _Input, tokenizer: Tokenizer, build: Build) -> Path:
    """The tokens of a corpus, in `folder`."""
    masked = bool(each.corpus.prompt_field or each.corpus.messages_field)

    def fill(draft: Path) -> None:
        with progress.counted(f"Preparing {each.name}") as advance:
            store.write(draft, each.source.pieces(), tokenizer, masked, advance)
        if not Store(draft).metadata["targets"]:
            missing = "no token to learn" if masked else "no text"
            raise ConfigError(f"data.corpora.{each.name} has {missing}: give another corpus")
        if each.source.fingerprint() != each.state:
            raise ConfigError(f"data.corpora.{each.name} changed while it was read: prepare again")

    return build(folder, fill)


def _prepared(
    cache: Path, data: Data, mixture: Mixture, tokenizer: Tokenizer, key: str, build: Build
) -> Prepared:
    """The rows of all corpora; the stores are named as well, since equal ones may come and go."""
    stores = [corpus.folder.name for corpus in mixture.values()]
    name = hashed(key, rows.digest(data, mixture), stores)
    folder = build(cache / name, lambda draft: rows.write(draft, data, mixture, tokenizer))
    metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
    known = {field.name: metadata[field.name] for field in fields(Prepared)[1:]}
    return Prepared(prepared=str(folder), **known)


def main() -> int:
    """Prepare the data of the job on stdin; the last line on stdout is `Prepared` as JSON.

    With --ready nothing is prepared: it is null where something is missing.
    """
    build = present if "--ready" in sys.argv else built
    job = cast(Job, read(Job, json.load(sys.stdin)))
    try:
        import_user_modules(job.user)
        print(json.dumps(asdict(prepare(job.data, build))))
    except MissingError:
        print("null")
    except (ConfigError, OSError) as error:
        print(of_path(error) if isinstance(error, OSError) else error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
