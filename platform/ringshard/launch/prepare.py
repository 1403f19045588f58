"""What a job needs before its first file: a model that can be built, and its data.

Both are looked at in processes of their own, so that nothing heavy is imported here.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ringshard import child
from ringshard.config.complete import complete_data
from ringshard.config.compose import Command, Member
from ringshard.config.description import describe
from ringshard.config.effects import refuse_filled_in
from ringshard.config.leaves import leaves
from ringshard.config.overlap import warning
from ringshard.config.refusal import refusals
from ringshard.config.roles import check_weights
from ringshard.config.schema.data import Data
from ringshard.config.schema.job import Job
from ringshard.config.schema.parallelism import Attention
from ringshard.config.schema.prepare import PrepareJob
from ringshard.config.schema.reader import as_yaml, plain
from ringshard.data.checks import check as check_data
from ringshard.errors import ConfigError
from ringshard.launch import show
from ringshard.launch.identity import Run
from ringshard.launch.own_code import check_names


def prepare_runs(runs: list[Run], ready_only: bool = False) -> list[Job]:
    """The data of each run: those it was frozen with, or new ones; raises ConfigError where a run
    that goes on would read other data than before. Returns the jobs whose data are missing."""
    frozen = {id(run): run.dir.frozen_data() for run in runs}
    new = [run.job for run in runs if not _lies_there(frozen[id(run)])]
    missing = prepare_all(new, ready_only=ready_only)
    for run in runs:
        before, data = frozen[id(run)], run.job.data
        if before and _lies_there(before):
            data.prepared, data.digest = before.prepared, before.digest
        elif before and data.digest and before.digest not in (None, data.digest):
            raise ConfigError(
                f"the data of {show.short(run.dir.path)} are not what they were (digest"
                f" {before.digest}, now {data.digest}): restore the text, or start a new run"
            )
    return missing


def _lies_there(data: Data | None) -> bool:
    return bool(data and data.prepared and (Path(data.prepared) / "metadata.json").is_file())


def prepare_all(jobs: list[Job], trains: bool = True, ready_only: bool = False) -> list[Job]:
    """Fills `data.prepared` and `data.digest` of every job; equal data are prepared once.

    ready_only: only from what lies there; the jobs whose data are missing are returned.

    Raises ChildError after the preparation has said its sentence on stderr, and ConfigError for a
    model that can't be built, does not fit the data or, as it is used, the attention; trains:
    whether it is trained, not only evaluated.
    """
    vocabularies = check_models(jobs, trains)
    known: dict[str, dict[str, Any] | None] = {}
    missing = []
    for job, vocabulary in zip(jobs, vocabularies, strict=True):
        key = json.dumps(leaves(job.data), sort_keys=True)
        if key not in known:
            known[key] = _ready(job) if ready_only else _prepare(job)
        if (prepared := known[key]) is None:
            missing.append(job)
        else:
            fill_in(job, vocabulary, prepared)
    return missing


def fill_in(job: Job, vocabulary: int | None, prepared: dict[str, Any]) -> None:
    """What came out of a preparation; raises ConfigError where the model has too few token ids.

    vocabulary: how many it insists on; None: it follows the data.
    """
    job.data.prepared, job.data.digest = prepared["prepared"], prepared["digest"]
    needed = prepared["vocab_size"]
    if vocabulary is not None and vocabulary < needed:
        raise ConfigError(
            f"model.config.vocab_size={vocabulary} is less than the {needed} token ids of the"
            f" data: set it to {needed} or more, or choose another tokenizer"
        )


def check_models(jobs: list[Job], trains: bool = True) -> list[int | None]:
    """The vocabulary that each model insists on, None where it follows the data.

    Raises ConfigError for what can't be built, as `prepare_all` does; nothing is prepared.
    """
    for job in jobs:
        check_names(job)
    return [_check_model(job, trains) for job in jobs]


def _check_model(job: Job, trains: bool) -> int | None:
    """The vocabulary that the model's configuration insists on; None: it follows the data."""
    model = describe(job.model, 1, job.user)
    if trains:
        check_weights(job.optimizer, model.weights)
    if job.parallelism.attention is Attention.ring and model.traits is not None:
        for reason in refusals(model, model.traits, trains):
            raise ConfigError(reason)
    if slow := warning(job, model):
        print(slow, file=sys.stderr, flush=True)
    if model.learned_positions and job.data.seq_len > (model.max_positions or 0):
        raise ConfigError(
            f"data.seq_len={job.data.seq_len} is longer than the {model.max_positions} positions of"
            f" the {model.model_type}: set data.seq_len={model.max_positions}"
        )
    return model.vocab_size if model.vocab_size > 1 else None


def _ready(job: Job) -> dict[str, Any] | None:
    """What lies there; None where something is missing, which takes more than a look."""
    answer: dict[str, Any] | None = child.ask(
        "ringshard.data.prepare", "--ready", about=plain(job), aloud=True
    )
    return answer


def _prepare(job: Job | PrepareJob) -> dict[str, Any]:
    """Progress and errors go straight to the terminal; the answer is the last line of stdout."""
    answer: dict[str, Any] = child.ask("ringshard.data.prepare", about=plain(job), aloud=True)
    return answer


def prepare_and_print(command: Command, members: list[Member[PrepareJob]]) -> int:
    """jobs/prepare.py: prepares the data of each member and prints where they lie."""
    for member in members:
        config = member.config
        refuse_filled_in(config.data, config.user, member.overrides)
        complete_data(config.data, Path.cwd())
        config.user.path = str(Path(config.user.path).absolute())
        check_data(config.data)
    if command.dry_run:
        for member in members:
            print(as_yaml(member.config.data))
        print("dry run: nothing was written")
        return 0
    for member in members:
        print(_described(_prepare(member.config)))
    return 0


def _described(prepared: dict[str, Any]) -> str:
    """What a user wants to know of prepared data, in a few lines."""
    rows = (
        f"{prepared['train_rows']:,} for training, {prepared['validation_rows']:,} for validation"
    )
    lines = {
        "prepared": prepared["prepared"],
        "digest": prepared["digest"],
        "documents": f"{prepared['documents']:,}",
        "tokens": f"{prepared['tokens']:,}, of {prepared['vocab_size']:,} kinds",
        "rows": rows,
        "padding": f"{prepared['train_padding']:.2%} of the inputs to train on",
    }
    if prepared["bigram_entropy"] is not None:
        entropy = f"{prepared['bigram_entropy']:.4f} nats per token"
        lines["entropy"] = f"{entropy}, of the validation split's bigrams"
    return "\n".join(f"{name:<10}{value}" for name, value in lines.items())
