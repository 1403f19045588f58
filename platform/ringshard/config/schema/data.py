"""What the model reads: corpora, a tokenizer, and how documents become rows."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class CorpusKind(Enum):
    """Where a corpus comes from."""

    python_stdlib = "python_stdlib"
    text_files = "text_files"
    hf_dataset = "hf_dataset"
    custom = "custom"


class DocumentUnit(Enum):
    """What counts as one document of a plain text file."""

    file = "file"
    line = "line"
    separator = "separator"


class Split(Enum):
    """How validation text is set apart."""

    document = "document"
    position = "position"


class Packing(Enum):
    """How documents become rows of equal length."""

    documents = "documents"
    concat = "concat"
    none = "none"


class TokenizerKind(Enum):
    """What turns text into token ids."""

    bytes = "bytes"
    characters = "characters"
    bpe = "bpe"
    directory = "directory"


@dataclass
class Tokenizer:
    """How text becomes token ids."""

    kind: TokenizerKind = TokenizerKind.bytes
    """bytes: 256 ids and an end-of-text id; characters: those of the corpus; bpe: trained on the
    corpus; directory: one that exists."""
    path: str | None = None
    """directory only: a folder with a tokenizer.json, or a transformers tokenizer."""
    vocab_size: int | None = None
    """bpe only: number of token ids to train [tokens]."""
    end_token: str | None = None
    """directory only: the token put after each document (default: the folder's eos_token)."""


@dataclass
class Corpus:
    """One source of documents."""

    kind: CorpusKind = CorpusKind.text_files
    """python_stdlib, text_files, hf_dataset, or custom (registered by a user module)."""
    weight: float = 1.0
    """Share of this corpus among the rows, relative to the other corpora."""
    path: str | None = None
    """text_files: file, folder or glob; hf_dataset: name or folder."""
    name: str | None = None
    """hf_dataset: configuration name; custom: the registered name."""
    subset: str | None = None
    """hf_dataset: the split to read (default: train)."""
    document: DocumentUnit = DocumentUnit.file
    """text_files, plain text: what one document is."""
    separator: str | None = None
    """document=separator only: the string between two documents."""
    text_field: str | None = None
    """Records (jsonl, parquet, hf_dataset, custom): the field that holds the text (default:
    text)."""
    prompt_field: str | None = None
    """Records: a field put before the text whose tokens are read but not learned."""
    messages_field: str | None = None
    """Records: a list of {role, content}; only the assistant's tokens are learned."""
    args: dict[str, Any] = field(default_factory=dict)
    """custom only: arguments of the registered corpus."""


@dataclass
class Data:
    """Corpora, tokenizer, and the rows made of them."""

    corpora: dict[str, Corpus] = field(default_factory=dict)
    """Corpora by name; their weights make the mixture."""
    path: str | None = None
    """Shorthand of data=text_files, hf_dataset and mixture: the path of their corpus."""
    document: DocumentUnit = DocumentUnit.file
    """Shorthand of data=text_files and mixture: what one document of plain text is."""
    separator: str | None = None
    """Shorthand of the same: the string between two documents, with document=separator."""
    tokenizer: Tokenizer = field(default_factory=Tokenizer)
    """How text becomes token ids."""
    seq_len: int = 256
    """Length of a row [target tokens]; a row holds one token more."""
    packing: Packing = Packing.documents
    """documents: whole ones packed into rows (best fit), longer ones cut into pieces that fill a
    row, each attending to itself alone, with positions from 0; concat: documents end to end, rows
    cut anywhere, a token attending to all before it in its row, of other documents too; none: one
    document or piece a row. Padding is a document of its own and not learned."""
    split: Split = Split.document
    """document: whole documents are set apart for validation; position: the end of each corpus."""
    validation_share: float = 0.05
    """Share of the documents (or of the text) that is set apart for validation."""
    cache: str = "${output.root}/data"
    """Folder of the token stores; shared by all runs."""
    prepared: str | None = None
    """Set when a job is frozen: the folder of the prepared data."""
    digest: str | None = None
    """Set when a job is frozen: the digest of the prepared data."""
