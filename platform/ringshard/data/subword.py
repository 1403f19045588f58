"""Tokenizers of the `tokenizers` library: trained here, or taken from a folder."""

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ringshard.data.tokenizer import END, Ids
from ringshard.errors import ConfigError

_ENDS = (END, "<|end_of_text|>", "</s>", "<eos>")  # where a folder does not say


class Subword:
    """A tokenizer of the library, and the token that ends a document."""

    def __init__(self, library: Tokenizer, end: str, literal: bool) -> None:
        """`literal`: special tokens that stand in a text are read as the text they are."""
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = literal
        vocabulary = library.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values()) + 1
        self.end: int = vocabulary[end]
        self._library, self._end = library, end
        self._lead = self._leading()

    def _leading(self) -> str:
        """What is put before text that goes on, and dropped again; empty where nothing is needed.

        SentencePiece models need it: they add a space to all that begins.
        """
        newline, letter, both = (
            self._library.encode(text, add_special_tokens=False).ids for text in ("\n", "x", "\nx")
        )
        begins = both[: len(newline)] == newline
        return "\n" if begins and both != newline + letter else ""

    def encode(self, texts: Sequence[str], continued: Sequence[bool] = ()) -> tuple[Ids, Ids]:
        """See tokenizer.Tokenizer."""
        lead = self._lead if any(continued) else ""
        if lead:
            texts = [lead * goes_on + text for text, goes_on in zip(texts, continued, strict=True)]
        batch = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
        parts = [encoding.ids for encoding in batch]
        if lead:
            dropped = len(self._library.encode(lead, add_special_tokens=False).ids)
            parts = [part[dropped * on :] for part, on in zip(parts, continued, strict=True)]
        lengths = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
        ids = np.fromiter(chain.from_iterable(parts), dtype=np.int64, count=int(lengths.sum()))
        return ids, lengths

    def decode(self, ids: Sequence[int]) -> str:
        """See tokenizer.Tokenizer."""
        return str(self._library.decode(list(ids), skip_special_tokens=False))

    def save(self, folder: Path) -> None:
        """See tokenizer.Tokenizer; a folder that transformers reads as well."""
        self._library.save(str(folder / "tokenizer.json"))
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": self._end,
            "split_special_tokens": self._library.encode_special_tokens,
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))


def train(texts: Iterator[str], vocab_size: int) -> Subword:
    """Byte-level BPE (Radford et al. 2019, the scheme of GPT-2) with `vocab_size` ids."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    trained = Subword(library, END, literal=True)
    if trained.vocab_size < vocab_size:
        raise ConfigError(
            f"data.tokenizer.vocab_size={vocab_size} is more than this corpus yields: "
            f"use at most {trained.vocab_size}, or more text"
        )
    return trained


def load(folder: Path, end: str | None = None) -> Subword:
    """The tokenizer of a folder: its tokenizer.json, or what transformers can convert to one."""
    file = folder / "tokenizer.json"
    library = Tokenizer.from_file(str(file)) if file.is_file() else _converted(folder)
    config = _config(folder)
    end = end or _eos(config) or _usual_end(library)
    if end is None or library.token_to_id(end) is None:
        what = "names no end-of-text token" if end is None else f"has no token {end}"
        raise ConfigError(
            f"data.tokenizer.path={folder} {what}: set data.tokenizer.end_token to one it has"
        )
    return Subword(library, end, literal=bool(config.get("split_special_tokens")))


def _converted(folder: Path) -> Tokenizer:
    try:
        from transformers import AutoTokenizer

        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    except Exception as error:  # transformers raises whatever its many loaders raise
        raise ConfigError(
            f"data.tokenizer.path={folder} holds no tokenizer that the tokenizers library can run: "
            "give a folder with a tokenizer.json"
        ) from error
    return tokenizer


def _config(folder: Path) -> dict[str, Any]:
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            config: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
            if "eos_token" in config:
                return config
    return {}


def _eos(config: dict[str, Any]) -> str | None:
    token = config.get("eos_token")
    return token["content"] if isinstance(token, dict) else token


def _usual_end(library: Tokenizer) -> str | None:
    return next((end for end in _ENDS if library.token_to_id(end) is not None), None)
