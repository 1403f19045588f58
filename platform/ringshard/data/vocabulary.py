"""The tokenizer that `data.tokenizer` asks for: taken as it is, or learned from the corpora."""

from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ringshard.config.schema.data import Tokenizer as Config
from ringshard.config.schema.data import TokenizerKind
from ringshard.data import files, tokenizer
from ringshard.data.documents import Piece
from ringshard.data.tokenizer import Bytes, Tokenizer, characters
from ringshard.errors import ConfigError

_FILES = ("units.json", "*token*", "*.jinja", "vocab*", "merges*", "*.model")


def folder(config: Config) -> Path | None:
    """The folder of a tokenizer that exists; raises ConfigError if it does not hold one."""
    if config.kind is not TokenizerKind.directory:
        return None
    path = Path(str(config.path)).expanduser()
    if not _files(path):
        raise ConfigError(
            f"data.tokenizer.path={config.path} holds no tokenizer: "
            "give a folder with a tokenizer.json"
        )
    return path


def fingerprint(config: Config, corpora: list[Any]) -> list[Any]:
    """Plain data that changes when the token ids do, from the fingerprints of the corpora."""
    if config.kind is TokenizerKind.bytes:
        return ["bytes"]
    if config.kind is TokenizerKind.characters:
        return ["characters", corpora]
    if config.kind is TokenizerKind.bpe:
        return ["bpe", config.vocab_size, version("tokenizers"), corpora]
    path = Path(str(config.path)).expanduser()
    return ["directory", config.end_token, files.fingerprint(_files(path))]


def is_learned(config: Config) -> bool:
    """Whether the corpora decide what the tokenizer is."""
    return config.kind in (TokenizerKind.characters, TokenizerKind.bpe)


def given(config: Config) -> Tokenizer:
    """A tokenizer that is not learned."""
    if config.kind is TokenizerKind.bytes:
        return Bytes()
    return tokenizer.load(Path(str(config.path)).expanduser(), config.end_token)


def learned(config: Config, pieces: Iterable[Piece]) -> Tokenizer:
    """The tokenizer of all these documents."""
    if config.kind is TokenizerKind.characters:
        return characters((piece.text, piece.ends) for piece in pieces)
    from ringshard.data import subword

    return subword.train((piece.text for piece in pieces), config.vocab_size or 0)


def _files(folder: Path) -> list[Path]:
    """The files that make up a tokenizer; a model's weights may lie beside them."""
    return sorted({path for pattern in _FILES for path in folder.glob(pattern) if path.is_file()})
