"""Options that would have no effect are errors: whoever sets one expects it to do something."""

from collections.abc import Iterator
from dataclasses import fields

from ringshard.config.leaves import leaves
from ringshard.config.schema.data import Corpus, CorpusKind, Data, DocumentUnit, TokenizerKind
from ringshard.config.schema.debug import Debug, DebugMode
from ringshard.config.schema.hardware import Scheduler, Slurm
from ringshard.config.schema.job import Job
from ringshard.config.schema.optimizer import OPTIMIZERS
from ringshard.errors import ConfigError


def check_effects(job: Job) -> None:
    """Raises ConfigError for the first option that nothing would read."""
    for key, value, reason in _idle(job):
        raise ConfigError(f"{key}={value} would have no effect: {reason}")


def check_data_effects(data: Data) -> None:
    """The same for a data group alone."""
    for key, value, reason in _idle_data(data):
        raise ConfigError(f"{key}={value} would have no effect: {reason}")


def _idle(job: Job) -> Iterator[tuple[str, object, str]]:
    """(key, value, why nothing reads it and what would)."""
    if job.hardware.scheduler is Scheduler.local:
        for name, value in _set(job.hardware.slurm, Slurm()):
            yield f"hardware.slurm.{name}", value, "hardware.scheduler=slurm reads it"
    if job.debug.mode is not DebugMode.ranks:
        for name, value in _set(job.debug, Debug(mode=job.debug.mode)):
            yield f"debug.{name}", value, "debug=ranks reads it"
    if job.optimizer.args and job.optimizer.name in OPTIMIZERS:
        args = job.optimizer.args
        yield "optimizer.args", args, f"{job.optimizer.name} has fields, set optimizer.KEY"
    if job.checkpoint.every == 0 and not job.checkpoint.at_end and job.checkpoint.keep != 3:
        yield "checkpoint.keep", job.checkpoint.keep, "checkpoint.every=0 at_end=false saves none"
    yield from _idle_data(job.data)


def _idle_data(data: Data) -> Iterator[tuple[str, object, str]]:
    paths = [corpus.path for corpus in data.corpora.values()]
    if data.path is not None and data.path not in paths:
        yield "data.path", data.path, "no corpus of this data group reads it, use data=text_files"
    if data.tokenizer.vocab_size is not None and data.tokenizer.kind is not TokenizerKind.bpe:
        size = data.tokenizer.vocab_size
        yield "data.tokenizer.vocab_size", size, "data.tokenizer.kind=bpe reads it"
    if data.tokenizer.path is not None and data.tokenizer.kind is not TokenizerKind.directory:
        path = data.tokenizer.path
        yield "data.tokenizer.path", path, "data.tokenizer.kind=directory reads it"
    for name, corpus in data.corpora.items():
        for key, value, reason in _idle_corpus(corpus):
            yield f"data.corpora.{name}.{key}", value, reason


_READERS: dict[str, tuple[CorpusKind, ...]] = {
    "path": (CorpusKind.text_files, CorpusKind.hf_dataset, CorpusKind.custom),
    "name": (CorpusKind.hf_dataset, CorpusKind.custom),
    "subset": (CorpusKind.hf_dataset,),
    "document": (CorpusKind.text_files,),
    "separator": (CorpusKind.text_files,),
    "text_field": (CorpusKind.text_files, CorpusKind.hf_dataset, CorpusKind.custom),
    "prompt_field": (CorpusKind.text_files, CorpusKind.hf_dataset, CorpusKind.custom),
    "messages_field": (CorpusKind.text_files, CorpusKind.hf_dataset, CorpusKind.custom),
    "args": (CorpusKind.custom,),
}


def _idle_corpus(corpus: Corpus) -> Iterator[tuple[str, object, str]]:
    for name, value in _set(corpus, Corpus()):
        kinds = _READERS.get(name, tuple(CorpusKind))
        if corpus.kind not in kinds:
            yield name, value, f"kind={' or '.join(kind.name for kind in kinds)} reads it"
    if corpus.separator is not None and corpus.document is not DocumentUnit.separator:
        yield "separator", repr(corpus.separator), "document=separator reads it"
    if corpus.messages_field and (corpus.text_field or corpus.prompt_field):
        key = "text_field" if corpus.text_field else "prompt_field"
        yield key, getattr(corpus, key), "messages_field takes its place"


def _set(value: object, default: object) -> list[tuple[str, object]]:
    """The fields that differ from their defaults, as plain values."""
    plain, before = leaves(value), leaves(default)
    names = [field.name for field in fields(value)]  # type: ignore[arg-type]  # dataclasses only
    return [(name, plain[name]) for name in names if plain[name] != before[name]]
