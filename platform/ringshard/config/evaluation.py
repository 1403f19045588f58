"""From a job that was frozen, or a folder with a model, to the job that evaluates it; all pure."""

from dataclasses import fields, replace
from pathlib import Path

from ringshard.config.leaves import named, under
from ringshard.config.schema.data import Data, Tokenizer, TokenizerKind
from ringshard.config.schema.evaluation import EvaluateJob, EvaluationOptions, Measurement
from ringshard.config.schema.hardware import Hardware, Scheduler
from ringshard.config.schema.job import Job, Output
from ringshard.config.schema.launcher import Launcher
from ringshard.config.schema.model import Model
from ringshard.config.schema.optimizer import AdamW
from ringshard.config.schema.precision import Dtype, Precision
from ringshard.config.schema.schedule import Constant
from ringshard.config.schema.tracking import Backend, Tracking
from ringshard.config.schema.train import Train
from ringshard.errors import ConfigError


def of_folder(folder: Path) -> Job:
    """The job that a run of the model in a folder would have had; it has no data of its own."""
    tokenizer = Tokenizer(kind=TokenizerKind.directory, path=str(folder))
    return Job(
        model=Model(pretrained=str(folder)),
        data=Data(tokenizer=tokenizer),
        output=Output(name=folder.name),
    )


def beneath(source: Job, overrides: list[str]) -> EvaluateJob:
    """What holds where the overrides name nothing: the values of `source`.

    An option of a group brings its own, so the group starts from its defaults; but another corpus
    is read as the run reads its own: tokenizer, row length and split stay.
    """
    keys = {named(override) for override in overrides}
    base = EvaluateJob(
        hardware=source.hardware,
        parallelism=replace(source.parallelism, dp_shard=-1, reshard_after_forward=True),
        precision=replace(source.precision, reduce=Dtype.fp32),  # there are no gradients
        data=_unprepared(source.data),
        output=source.output,
        user=source.user,
    )
    for group in keys & {"hardware", "parallelism", "precision"}:
        setattr(base, group, type(getattr(base, group))())
    if "data" in keys:
        fresh = {name: getattr(Data, name) for name in ("path", "document", "separator")}
        base.data = replace(base.data, corpora={}, **fresh)
    if any(under(key, ("data.tokenizer",)) for key in keys):
        _refuse_tokenizer(source, keys)
        base.data.tokenizer = Tokenizer()
    return base


def _refuse_tokenizer(source: Job, keys: set[str]) -> None:
    if source.data.prepared is not None:
        key = min(key for key in keys if under(key, ("data.tokenizer",)))
        raise ConfigError(
            f"{key}: a run is evaluated through its own tokenizer, another one would give its model"
            " ids that mean something else; leave it out"
        )


def job_of(config: EvaluateJob, source: Job) -> Job:
    """What the ranks read; of what concerns training it holds nothing but the order of the data."""
    world, micro_batch = config.hardware.world_size, config.micro_batch
    return Job(
        hardware=config.hardware,
        parallelism=config.parallelism,
        model=source.model,
        data=_data(config.data, source.data),
        optimizer=AdamW(),
        schedule=Constant(),
        precision=_precision(config),
        train=Train(
            seed=source.train.seed,
            steps=1,
            global_batch=world * micro_batch,
            micro_batch=micro_batch,
        ),
        tracking=Tracking(Backend.none, f"sqlite:///{config.output.root}/mlflow.db"),
        launcher=_launcher(config.hardware),
        debug=config.debug,
        output=config.output,
        user=config.user,
    )


def _precision(config: EvaluateJob) -> Precision:
    """Averages are kept in fp32, whatever the weights are."""
    return replace(config.precision, weights=Dtype.fp32) if config.averaged else config.precision


def _launcher(hardware: Hardware) -> Launcher:
    """Of an evaluation that is stopped nothing is lost."""
    local = hardware.scheduler is Scheduler.local
    return Launcher(stop_timeout_s=0) if local else Launcher()


def _data(asked: Data, frozen: Data) -> Data:
    """The run's own data as prepared, or others through its tokenizer: a vocabulary that was
    learned is never learned anew."""
    if frozen.prepared is None:
        return asked
    asked = replace(asked, tokenizer=frozen.tokenizer)
    if asked == _unprepared(frozen):
        return replace(frozen)
    if frozen.tokenizer.kind in (TokenizerKind.bpe, TokenizerKind.characters):
        learned = Tokenizer(kind=TokenizerKind.directory, path=frozen.prepared)
        return replace(asked, tokenizer=learned)
    return asked


def _unprepared(data: Data) -> Data:
    return replace(data, prepared=None, digest=None)


def options_of(config: EvaluateJob, checkpoint: Path | None) -> EvaluationOptions:
    """What the ranks read beside the job."""
    given = {field.name: getattr(config, field.name) for field in fields(Measurement)}
    return EvaluationOptions(**given, checkpoint=str(checkpoint) if checkpoint else None)


def check_options(config: EvaluateJob) -> None:
    """Raises ConfigError for the first option that does not fit or would have no effect."""
    least = {"sequences": 0, "micro_batch": 1, "sample_tokens": 1, "temperature": 0, "seed": 0}
    for key, value in least.items():
        given = getattr(config, key)
        if not value <= given < 2**63:
            raise ConfigError(f"{key}={given} must be at least {value}, and less than 2^63")
    for key in ("sample_tokens", "temperature", "seed"):
        given = getattr(config, key)
        if not config.prompts and given != getattr(Measurement, key):
            raise ConfigError(f"{key}={given} would have no effect: give prompts=[TEXT] as well")
    if config.of.model and config.of.checkpoint:
        raise ConfigError(
            f"checkpoint={config.of.checkpoint} would have no effect: the weights are those of"
            f" model={config.of.model}"
        )


def check_averages(averaged: bool, source: Job) -> None:
    """Raises ConfigError where averages are asked for that the run does not keep."""
    if averaged and not getattr(source.optimizer, "ema_decay", 0.0):
        raise ConfigError(
            "averaged=true: the run has no averages of its weights (optimizer.ema_decay); leave it"
            " out"
        )
