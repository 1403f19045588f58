"""Options that would have no effect are errors: whoever sets one expects it to do something."""

from collections.abc import Iterator
from dataclasses import fields, replace

from ringshard.config.leaves import leaves, named
from ringshard.config.schema.checkpoint import Checkpoint
from ringshard.config.schema.data import Data
from ringshard.config.schema.debug import Debug, DebugMode
from ringshard.config.schema.hardware import Scheduler, Slurm
from ringshard.config.schema.job import Job, User
from ringshard.config.schema.launcher import Launcher
from ringshard.config.schema.optimizer import OPTIMIZERS, MuonHyperball, Optimizer
from ringshard.config.schema.parallelism import Parallelism
from ringshard.config.schema.precision import Dtype
from ringshard.config.schema.search import Pruner, Sampler, Search
from ringshard.config.schema.tracking import Tracking
from ringshard.errors import ConfigError

Idle = Iterator[tuple[str, object, str]]
"""(key, value, why nothing reads it and what would)."""


def check_effects(job: Job) -> None:
    """Raises ConfigError for the first option that nothing would read; paths are absolute."""
    for idle in (_hardware(job), _launcher(job), _debug(job.debug), _model(job)):
        _refuse(idle)
    for idle in (_optimizer(job.optimizer), _checkpoint(job.checkpoint)):
        _refuse(idle)
    for idle in (_parallel(job), _tracking(job), _search(job.search)):
        _refuse(idle)


def refuse_filled_in(data: Data, user: User, overrides: list[str]) -> None:
    """Raises ConfigError for what only a frozen job holds, in one that is not frozen yet, and for a
    path that no module is looked for in."""
    for name in ("prepared", "digest"):
        value = getattr(data, name)
        if value is not None:
            raise ConfigError(
                f"data.{name}={value} is set when a job is frozen: leave it out, data that lie"
                " ready in data.cache are found"
            )
    if not user.modules and "user.path" in map(named, overrides):
        _refuse(iter([("user.path", user.path, "user.modules=[NAME] is looked for in it")]))


def refuse_policy(launcher: Launcher) -> None:
    """Raises ConfigError for the policy of a sweep where there is one run."""
    reason = "there is one run, and no member after it"
    given = [(name, value) for name, value in _set(launcher, Launcher()) if name in _OF_SWEEPS]
    _refuse((f"launcher.{name}", value, reason) for name, value in given)


_OF_SWEEPS = ("on_failure", "max_parallel")


_ON_SLURM = (
    *("wait", "snapshot", "after", "lead_s"),
    *("max_restarts", "max_crashes", "max_timeouts"),
)
_HERE = ("on_failure", "stop_timeout_s")
"""Options of the launcher that one of the two schedulers alone reads; a search reads on_failure
with either."""


def _launcher(job: Job) -> Idle:
    local = job.hardware.scheduler is Scheduler.local
    other = "slurm" if local else "local"
    searches = job.search.sampler is not Sampler.none
    for name, value in _set(job.launcher, Launcher()):
        if searches and name == "wait":
            yield "launcher.wait", value, "a search always waits for its runs"
        elif name in (_ON_SLURM if local else _HERE) and not (searches and name == "on_failure"):
            yield f"launcher.{name}", value, f"hardware.scheduler={other} reads it"
    metric = job.launcher.metric
    if metric is not None and not (job.launcher.wait or local or searches):
        yield "launcher.metric", metric, "a command that ends before the runs shows none"
    if metric is not None and not job.tracking.backend.records:
        yield "launcher.metric", metric, "nothing is recorded with tracking=none"
    if metric is None and not (job.launcher.minimize or searches):
        yield "launcher.minimize", False, "launcher.metric=NAME says what a result is"


def _refuse(idle: Idle) -> None:
    for key, value, reason in idle:
        raise ConfigError(f"{key}={value} would have no effect: {reason}")


def _hardware(job: Job) -> Idle:
    if job.hardware.scheduler is Scheduler.local:
        for name, value in _set(job.hardware.slurm, Slurm()):
            yield f"hardware.slurm.{name}", value, "hardware.scheduler=slurm reads it"
    if job.parallelism.cp == 1:
        whole = "with parallelism.cp=1 each process has whole sequences, raise cp"
        for name, value in _set(job.parallelism, Parallelism()):
            if name.startswith("cp_"):
                yield f"parallelism.{name}", value, whole
        if job.debug.compare_rows:
            yield "debug.compare_rows", "true", whole


def _debug(debug: Debug) -> Idle:
    if debug.mode is not DebugMode.ranks:
        compare_rows = debug.compare_rows  # in any mode
        for name, value in _set(debug, Debug(debug.mode, compare_rows=compare_rows)):
            yield f"debug.{name}", value, "debug=ranks reads it"
    elif debug.rank is None and debug.port != Debug().port:
        yield "debug.port", debug.port, "debug.rank=N says which rank waits there"


def _model(job: Job) -> Idle:
    if job.model.trust_remote_code and job.model.type:
        yield "model.trust_remote_code", True, "model.path or model.pretrained have code of theirs"


def _optimizer(optimizer: Optimizer) -> Idle:
    if optimizer.args and optimizer.name in OPTIMIZERS:
        yield "optimizer.args", optimizer.args, f"{optimizer.name} has fields, set optimizer.KEY"
    if isinstance(optimizer, MuonHyperball) and optimizer.normalize_update:
        for name, value in _set(optimizer, replace(optimizer, scale=MuonHyperball().scale)):
            yield f"optimizer.{name}", value, "optimizer.normalize_update=false reads it"


def _checkpoint(checkpoint: Checkpoint) -> Idle:
    if checkpoint.every == 0 and not checkpoint.at_end:
        for name, value in _set(checkpoint, Checkpoint(0, False, verify=checkpoint.verify)):
            yield f"checkpoint.{name}", value, "checkpoint.every=0 at_end=false saves none"
    if checkpoint.keep == 0 and checkpoint.keep_every:
        yield "checkpoint.keep_every", checkpoint.keep_every, "checkpoint.keep=0 keeps all"


def _parallel(job: Job) -> Idle:
    """Of one process nothing is sharded and no gradient is sent; bf16 casts it all the same."""
    sharded = job.parallelism.dp_shard * job.parallelism.cp > 1
    if not sharded and not job.parallelism.reshard_after_forward:
        yield "parallelism.reshard_after_forward", False, "nothing is sharded at dp_shard=1 cp=1"
    precision = job.precision
    alone = job.hardware.world_size == 1 and precision.compute is Dtype.fp32
    if alone and precision.reduce is not Dtype.fp32:
        yield "precision.reduce", precision.reduce.name, "one process sums no gradients"


def _tracking(job: Job) -> Idle:
    tracking = job.tracking
    default = Tracking(tracking.backend, f"sqlite:///{job.output.root}/mlflow.db")
    for name, value in _set(tracking, default):
        if not tracking.backend.records:
            yield f"tracking.{name}", value, "nothing is recorded with tracking=none"
        elif not tracking.backend.ships and name == "flush_timeout_s":
            yield f"tracking.{name}", value, "tracking=mlflow reads it"


def _search(search: Search) -> Idle:
    kept = Search(search.sampler, search.trials, search.seed, pruner=search.pruner)
    if search.sampler is Sampler.none:
        kept = Search()
    for name, value in _set(search, kept):
        if search.sampler is Sampler.none:
            yield f"search.{name}", value, "search=tpe or search=random reads it"
        elif name.startswith("pruner_") and search.pruner is Pruner.none:
            yield f"search.{name}", value, "search.pruner=median reads it"
        elif name == "startup_trials" and search.sampler is Sampler.random:
            yield f"search.{name}", value, "search=tpe reads it"


def _set(value: object, default: object) -> list[tuple[str, object]]:
    """The fields that differ from their defaults, as plain values."""
    plain, before = leaves(value), leaves(default)
    names = [field.name for field in fields(value)]  # type: ignore[arg-type]  # dataclasses only
    return [(name, plain[name]) for name in names if plain[name] != before[name]]
