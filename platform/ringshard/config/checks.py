"""What must hold between the fields of a job, each in one sentence; pure functions of a Job.

`check` is called for every member of a sweep before anything is written. Options that would have no
effect are in `ringshard.config.effects`, the rules of the data group in `ringshard.data.checks`.
"""

import re
import sys
from difflib import get_close_matches
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from sys import float_info

from ringshard.config.batch import check_batch
from ringshard.config.degrees import check_attention, check_degrees
from ringshard.config.effects import check_effects
from ringshard.config.leaves import leaves
from ringshard.config.length import Length
from ringshard.config.optimizing import check_optimizer
from ringshard.config.schema.hardware import Device, Scheduler
from ringshard.config.schema.job import Job
from ringshard.config.schema.optimizer import OPTIMIZERS, Optimizer
from ringshard.config.schema.precision import Dtype
from ringshard.config.schema.schedule import SCHEDULES, Schedule, Wsd
from ringshard.config.secrets import refuse_secrets
from ringshard.data.checks import check as check_data
from ringshard.errors import ConfigError
from ringshard.tracking.store import check as check_address

AT_LEAST = {
    "hardware.nodes": 1,
    "hardware.processes_per_node": 1,
    "hardware.threads_per_process": 1,
    "parallelism.dp_replicate": 1,
    "model.head_chunk": 1,
    "optimizer.lr": 0,
    "optimizer.weight_decay": 0,
    "optimizer.eps": 0,
    "optimizer.lr_reference_batch": 1,
    "optimizer.adamw_lr": 0,
    "optimizer.bucket_mb": 0,
    "schedule.warmup_steps": 0,
    "schedule.warmup_tokens": 0,
    "schedule.exponent": 0,
    "train.seed": 0,
    "train.steps": 1,
    "train.tokens": 1,
    "train.global_batch": 1,
    "train.micro_batch": 1,
    "train.batch_ramp_steps": 0,
    "train.grad_clip": 0,
    "train.noise_scale_every": 0,
    "train.log_every": 1,
    "train.eval_every": 0,
    "train.eval_sequences": 0,
    "checkpoint.every": 0,
    "checkpoint.keep": 0,
    "checkpoint.keep_every": 0,
    "checkpoint.max_failed_saves": 0,
    "launcher.stop_timeout_s": 0,
    "launcher.max_parallel": 1,
    "launcher.max_restarts": 0,
    "launcher.max_crashes": 0,
    "launcher.max_timeouts": 0,
    "launcher.lead_s": 10,
    "hardware.slurm.time_minutes": 1,
    "hardware.slurm.memory_gb": 0,
    "search.trials": 1,
    "search.seed": 0,
    "search.startup_trials": 0,
    "search.pruner_trials": 0,
    "search.pruner_step": 0,
    "tracking.flush_timeout_s": 0,
    "tracking.system_every_s": 0,
    "debug.rank": 0,
    "debug.port": 1,
}
AT_MOST = {
    "hardware.nodes": 2**16,
    "hardware.processes_per_node": 2**10,
    "hardware.threads_per_process": 2**12,
    "train.seed": 2**63 - 1,
    "train.tokens": 2**63 - 1,
    "debug.port": 65535,
}
LARGEST = 2**31 - 1
"""Of any other whole number."""
SHARES = ("schedule.floor", "schedule.decay_share")
BELOW_ONE = (
    "optimizer.ema_decay",
    "optimizer.beta1",
    "optimizer.beta2",
    "optimizer.momentum",
    "optimizer.mona_beta",
)
"""Decays of moments; with 1 a moment would stay 0."""


def check(job: Job) -> None:
    """Raises ConfigError for the first thing that does not fit; paths are absolute by now."""
    refuse_secrets(job)
    _ranges(job)
    _names(job)
    _length(job)
    check_degrees(job)
    _scheduler(job)
    check_batch(job)
    _model(job)
    check_data(job.data)
    check_attention(job)
    if job.tracking.backend.records:
        check_address(job.tracking.uri)
    check_optimizer(job)
    _debug(job)
    _user_modules(job)
    check_effects(job)


def _ranges(job: Job) -> None:
    values = leaves(job)
    for key, value in values.items():
        if not isinstance(value, int | float):
            continue
        most = AT_MOST.get(key, LARGEST) if isinstance(value, int) else float_info.max
        if key in AT_LEAST and not value >= AT_LEAST[key]:  # a nan is refused as well
            raise ConfigError(f"{key}={value} must be at least {AT_LEAST[key]}")
        if value > most:
            raise ConfigError(f"{key}={value} must be at most {most}")
    for key in SHARES:
        if not 0 <= values.get(key, 0) <= 1:
            raise ConfigError(f"{key}={values[key]} must lie between 0 and 1")
    for key in BELOW_ONE:
        if not 0 <= values.get(key, 0) < 1:
            raise ConfigError(f"{key}={values[key]} must be at least 0 and less than 1")
    _speeds("peak_tflops", job.hardware.peak_tflops, [dtype.name for dtype in Dtype])
    _speeds("link_gbytes_per_s", job.hardware.link_gbytes_per_s, ["node", "network"])


def _speeds(key: str, given: dict[str, float], known: list[str]) -> None:
    for name, speed in given.items():
        if name not in known:
            raise ConfigError(f"hardware.{key}.{name} is unknown: name one of {', '.join(known)}")
        if not 0 < speed <= float_info.max:
            raise ConfigError(f"hardware.{key}.{name}={speed} must be above 0")


def _names(job: Job) -> None:
    """A registered name is only known to the user's modules, which are not imported here."""
    if not re.search(r"[A-Za-z0-9]", job.output.name):
        raise ConfigError(f"output.name={job.output.name} names a folder: use letters and digits")
    sweep = job.sweep.name
    if sweep is not None and not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,79}", sweep):
        raise ConfigError(
            f"sweep.name={sweep} names a folder: use letters, digits, dots and dashes"
        )
    known = {
        "optimizer.name": (job.optimizer.name, list(OPTIMIZERS)),
        "schedule.name": (job.schedule.name, list(SCHEDULES)),
    }
    for key, (name, kinds) in known.items():
        own = key == "optimizer.name" and job.user.modules
        if name not in kinds and not own:
            near = get_close_matches(name, kinds, n=1) or kinds
            raise ConfigError(
                f"{key}={name} is not known: use {' or '.join(near)}"
                + (", or name the module that registers it in user.modules" if not own else "")
            )
    _fields(job)


def _fields(job: Job) -> None:
    """A name given beside an option of another name would leave that one's fields."""
    for group, value, kinds, general in (
        ("optimizer", job.optimizer, OPTIMIZERS, Optimizer),
        ("schedule", job.schedule, SCHEDULES, Schedule),
    ):
        if type(value) is not kinds.get(value.name, general):
            option = value.name if value.name in kinds else f"custom {group}.name={value.name}"
            raise ConfigError(
                f"{group}.name={value.name} does not go with the fields of another {group}: use"
                f" {group}={option}"
            )


def _length(job: Job) -> None:
    train = job.train
    if train.steps is not None and train.tokens is not None:
        raise ConfigError(
            f"train.steps={train.steps} and train.tokens={train.tokens} both say how long the run"
            " is: set one of them to null"
        )
    if train.steps is None and train.tokens is None:
        raise ConfigError("train.steps is missing: give train.steps=… or train.tokens=…")
    _schedule(job)


def _schedule(job: Job) -> None:
    """Warm-up and decay must fit into the run."""
    length, schedule = Length.of(job.train, job.data), job.schedule
    steps, warmup = length.nominal_steps, length.warmup(schedule)
    unit = "steps" if schedule.warmup_tokens is None else "tokens"
    said = f"schedule.warmup_{unit}={schedule.warmup_tokens or round(warmup)}"
    if schedule.warmup_steps is not None and schedule.warmup_tokens is not None:
        raise ConfigError(
            f"schedule.warmup_steps={schedule.warmup_steps} and {said} both say how long the"
            " warm-up is: set one of them to null"
        )
    if warmup > steps:
        raise ConfigError(
            f"{said} is longer than the run of {steps} steps: shorten it,"
            " or set it to null for a tenth of the run"
        )
    if isinstance(schedule, Wsd) and warmup + schedule.decay_share * steps > steps * (1 + 1e-9):
        raise ConfigError(
            f"{said} and schedule.decay_share={schedule.decay_share} take"
            f" more than the run of {steps} steps: shorten one of them"
        )


def _scheduler(job: Job) -> None:
    hardware = job.hardware
    if hardware.scheduler is Scheduler.local and hardware.nodes > 1:
        raise ConfigError(
            f"hardware.nodes={hardware.nodes} needs hardware.scheduler=slurm: local is one node"
        )
    at_once = job.launcher.max_parallel or 1
    if hardware.scheduler is Scheduler.local and hardware.device is Device.cuda and at_once > 1:
        raise ConfigError(
            f"launcher.max_parallel={at_once} would have runs at once share the same GPUs: use"
            " launcher.max_parallel=null, or hardware=slurm_h100, where each gets its own"
        )
    lead_s, minutes = job.launcher.lead_s, hardware.slurm.time_minutes
    if lead_s is not None and minutes is not None and lead_s > 30 * minutes:
        raise ConfigError(
            f"launcher.lead_s={lead_s} is more than half of hardware.slurm.time_minutes={minutes}:"
            f" give {30 * minutes} or less, or more time"
        )
    for key, value in hardware.slurm.extra.items():
        if value is None and key.replace("-", "_") in _NEEDED:
            raise ConfigError(
                f"hardware.slurm.extra.{key}=null can't be left out of what Slurm is asked for"
            )


_NEEDED = ("nodes", "ntasks_per_node", "signal", "time", "setup", "srun_args")


def _model(job: Job) -> None:
    sources = {"type": job.model.type, "path": job.model.path, "pretrained": job.model.pretrained}
    given = [f"model.{key}={value}" for key, value in sources.items() if value]
    folders = [text for text in given if not text.startswith("model.type=")]
    if sources["type"] and len(folders) == 1:
        raise ConfigError(
            f"{' and '.join(given)}: the folder says the type, use model=pretrained {folders[0]}"
        )
    if len(given) != 1:
        raise ConfigError(
            f"{' and '.join(given) or 'model.type is missing'}:"
            " a model comes from exactly one of model.type, model.path and model.pretrained"
            " (model=pretrained has no type)"
        )
    for key in ("path", "pretrained"):
        folder = sources[key]
        if folder and not (Path(folder) / "config.json").is_file():
            raise ConfigError(f"model.{key}={folder} is not a folder with a config.json in it")


def _debug(job: Job) -> None:
    rank, world = job.debug.rank, job.hardware.world_size
    if rank is not None and rank >= world:
        raise ConfigError(f"debug.rank={rank} does not exist: the ranks are 0 to {world - 1}")
    if rank is not None and find_spec("debugpy") is None:
        raise ConfigError(
            f"debug.rank={rank} needs debugpy, which is not installed: pip install debugpy"
        )
    if job.debug.mode.name == "one" and world != 1:
        raise ConfigError(
            f"hardware.processes_per_node={job.hardware.processes_per_node} with debug=on: it runs"
            " one process, use debug=ranks"
        )


def _user_modules(job: Job) -> None:
    """Looks for the modules without importing them: they may import torch."""
    for module in job.user.modules:
        if PathFinder.find_spec(module.split(".")[0], [job.user.path, *sys.path]) is None:
            raise ConfigError(
                f"user.modules=[{module}] is not found in user.path={job.user.path}"
                " or among the installed packages: set user.path to its parent folder"
            )
