"""What a composed job leaves open: where its paths start from, the degree that is -1, and the size
of a micro-batch."""

import os
import re
from math import gcd
from pathlib import Path

from ringshard.config.degrees import fill_degree
from ringshard.config.schema.data import Corpus, CorpusKind, Data
from ringshard.config.schema.job import Job
from ringshard.config.schema.train import BatchUnit

_SQLITE = "sqlite:///"
LARGEST_MICRO_BATCH = 8
"""What a process reads at once where the job names no size [sequences]."""


def complete(job: Job, folder: Path) -> None:
    """Fills in place: paths become absolute, starting at `folder`; a degree of -1 and a
    micro-batch of null become numbers.

    A frozen job must mean the same from any folder.
    """
    job.output.root = _absolute(job.output.root, folder)
    job.output.name = re.sub(r"[^A-Za-z0-9._-]+", "-", job.output.name)[:60]
    job.user.path = _absolute(job.user.path, folder)
    if job.launcher.after:
        job.launcher.after = _absolute(job.launcher.after, folder)
    if job.model.path:
        job.model.path = _absolute(job.model.path, folder)
    if job.model.pretrained:
        job.model.pretrained = _absolute(job.model.pretrained, folder)
    job.tracking.uri = _absolute_uri(job.tracking.uri, folder)
    complete_data(job.data, folder)
    fill_degree(job.parallelism, job.hardware.world_size)
    if job.train.micro_batch is None:
        job.train.micro_batch = _micro_batch(job)


def _micro_batch(job: Job) -> int | None:
    """The largest that divides the rows of a reader; null where they don't come out even, which
    `check` says."""
    readers = job.hardware.world_size // max(1, job.parallelism.cp)
    per_row = job.data.seq_len if job.train.batch_unit is BatchUnit.tokens else 1
    if readers < 1 or per_row < 1 or job.train.global_batch % (readers * per_row):
        return None
    # Of a ramp too; whether its batches come out even is for `check` to say.
    share = gcd(job.train.global_batch, *job.train.batch_ramp) // (readers * per_row)
    sizes = range(1, LARGEST_MICRO_BATCH + 1)
    return max((size for size in sizes if share and share % size == 0), default=1)


def complete_data(data: Data, folder: Path) -> None:
    """The paths of a data group, in place."""
    data.cache = _absolute(data.cache, folder)
    if data.tokenizer.path:
        data.tokenizer.path = _absolute(data.tokenizer.path, folder)
    for corpus in data.corpora.values():
        _absolute_corpus(corpus, data, folder)


def _absolute_corpus(corpus: Corpus, data: Data, folder: Path) -> None:
    if not corpus.path:
        return
    path = _absolute(corpus.path, folder)
    hub_name = corpus.kind is CorpusKind.hf_dataset and not Path(path).exists()
    if hub_name or corpus.kind is CorpusKind.custom:
        return
    if data.path == corpus.path:
        data.path = path
    corpus.path = path


def _absolute(path: str, folder: Path) -> str:
    return os.path.normpath(folder / Path(path).expanduser())


def _absolute_uri(uri: str, folder: Path) -> str:
    if uri.startswith(_SQLITE):
        return _SQLITE + _absolute(uri.removeprefix(_SQLITE), folder)
    return uri
