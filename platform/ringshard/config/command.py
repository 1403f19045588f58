"""A command line taken apart: Hydra's options, overrides, and what is ours alone."""

import argparse
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from hydra._internal.utils import get_args_parser

from ringshard.config.compose import Command
from ringshard.config.opened import refuse_commas
from ringshard.config.space import is_search
from ringshard.errors import ConfigError

_PRINT = "cfg", "info", "help", "hydra_help", "shell_completion"
_ALLOWED = "hydra.searchpath", "hydra/sweeper", "hydra.sweeper.", "hydra.help"
_SWEEPER = "hydra/sweeper="


def parse(config_name: str, argv: list[str]) -> tuple[Command, Path | None]:
    """The command, and the run directory of `resume=`; options may stand anywhere.

    Raises ConfigError.
    """
    resume = [word.partition("=")[2] for word in argv if word.startswith("resume=")]
    if len(resume) > 1:
        raise ConfigError(f"resume={' resume='.join(resume)}: one command goes on with one run")
    dry_run = "--dry-run" in argv
    argv = [word for word in argv if not word.startswith("resume=") and word != "--dry-run"]
    parser = _parser()
    arguments = parser.parse_intermixed_args(argv)
    sweeper = sweeper_of(arguments.overrides)
    for override in arguments.overrides:
        if not (sweeper and override.startswith("hydra.sweep.")):
            _refuse_hydra(override)
    options = _options(argv, arguments)
    prints = any(getattr(arguments, name) for name in _PRINT)
    if not (arguments.multirun or prints or resume or is_search(arguments.overrides)):
        refuse_commas(arguments.overrides)
    name = arguments.config_name or config_name
    command = Command(name, options, arguments.overrides, prints, dry_run)
    return command, _run_dir(resume[0]) if resume else None


def sweeper_of(overrides: list[str]) -> str | None:
    """The sweeper of Hydra's protocol that a command line names; None: our own."""
    named = [word.removeprefix(_SWEEPER) for word in overrides if word.startswith(_SWEEPER)]
    return named[-1] if named and named[-1] != "ringshard" else None


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise ConfigError(f"{message}; arguments are key=value, --help prints the options")

    for action in parser._actions:
        if "--version" in action.option_strings:
            action.version = f"Ringshard {version('ringshard')}"  # type: ignore[attr-defined]
    parser.error = refuse  # type: ignore[method-assign]  # argparse would print its usage first
    return parser


def _options(argv: list[str], arguments: argparse.Namespace) -> list[str]:
    """Hydra's options as given, --config-dir absolute, so that a resume finds it again."""
    options = list(argv)
    for override in arguments.overrides:
        options.remove(override)
    options = [word for word in options if word not in ("-m", "--multirun")]
    given = arguments.config_dir
    if given is None:
        return options
    if not Path(given).is_dir():
        raise ConfigError(
            f"--config-dir={given} is not a folder: give one with config groups in it"
        )
    folder = str(Path(given).absolute())
    return [word.removesuffix(given) + folder if word.endswith(given) else word for word in options]


def _refuse_hydra(override: str) -> None:
    key = override.lstrip("+~").partition("=")[0]
    if key.startswith(("hydra.", "hydra/")) and not key.startswith(_ALLOWED):
        hint = "output.root and output.name say where runs lie"
        raise ConfigError(f"{override} would have no effect: Hydra writes nothing here; {hint}")


def _run_dir(text: str) -> Path:
    path = Path(text.strip("\"'")).expanduser().absolute()
    if not path.is_dir():
        raise ConfigError(f"resume={text} does not exist: give the folder of a run")
    if not (path / "run.json").is_file():
        raise ConfigError(f"resume={text} is not the folder of a run: it has no run.json")
    return path
