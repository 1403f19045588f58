"""What is evaluated: a run's frozen job and one of its checkpoints, or a folder with a model."""

from pathlib import Path
from typing import Any

from ringshard.checkpoint.directory import committed, is_complete, named, names
from ringshard.config import evaluation
from ringshard.config.schema.evaluation import EvaluateJob, Subject
from ringshard.config.schema.job import Job
from ringshard.errors import ConfigError
from ringshard.launch.rundir import RunDir


def spelled_out(word: str) -> str:
    """An argument as Hydra has to read it: model=… and checkpoint=… alone would choose groups."""
    return f"of.{word}" if word.startswith(("run=", "model=", "checkpoint=")) else word


def beneath(overrides: list[str], config: Any) -> EvaluateJob:
    """The values of all that a command line does not name; raises ConfigError."""
    return evaluation.beneath(source(config.of), overrides)


def source(of: Subject) -> Job:
    """The job that a run was frozen with, or would have been; raises ConfigError."""
    if of.run and of.model:
        raise ConfigError(f"run={of.run} and model={of.model}: give one of them")
    if of.run:
        run_dir = RunDir(_folder("run", of.run))
        return run_dir.job(run_dir.last_attempt())
    if of.model:
        return evaluation.of_folder(_folder("model", of.model))
    raise ConfigError("run is missing: give run=FOLDER of a run, or model=FOLDER with a model")


def checkpoint(of: Subject) -> Path | None:
    """The run's checkpoint that is asked for, None for a model; raises ConfigError."""
    if of.run is None:
        return None
    root = _folder("run", of.run) / "checkpoints"
    known = committed(root)
    if not known:
        raise ConfigError(f"run={of.run} has no checkpoint: resume it, or wait for the first one")
    asked = of.checkpoint
    if asked is None:
        return known[max(known)]
    found = named(root, asked) or Path(asked).expanduser().absolute()
    if not is_complete(found):
        raise ConfigError(
            f"checkpoint={asked} is neither a step or pin nor a folder with a checkpoint: those of"
            f" the run are {', '.join(names(root))}"
        )
    return found


def _folder(key: str, text: str) -> Path:
    """The absolute path of a run or model."""
    path = Path(text).expanduser().absolute()
    holds = {"run": ("attempts/[0-9]*/job.yaml",), "model": ("config.json", "*.safetensors")}
    if not path.is_dir():
        raise ConfigError(f"{key}={text} does not exist: give the folder of a {key}")
    for pattern in holds[key]:
        if not any(path.glob(pattern)):
            raise ConfigError(f"{key}={text} is not the folder of a {key}: it has no {pattern}")
    return path
