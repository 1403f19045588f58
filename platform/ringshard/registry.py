"""Own models, optimizers, corpora and hooks, registered by name from a module of the user."""

import importlib
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from traceback import extract_tb
from typing import Any, Literal, TypeVar

from ringshard.config.schema.job import User
from ringshard.errors import ConfigError

Kind = Literal["model", "optimizer", "corpus", "hook"]
Made = TypeVar("Made", bound=Callable[..., Any])

_REGISTERED: dict[tuple[Kind, str], Callable[..., Any]] = {}


def register(kind: Kind, name: str) -> Callable[[Made], Made]:
    """A decorator that makes a class or function known under a name; a name is given once."""

    def remember(made: Made) -> Made:
        before = _REGISTERED.setdefault((kind, name), made)
        if (before.__module__, before.__qualname__) != (made.__module__, made.__qualname__):
            raise ConfigError(
                f"the {kind} {name} is registered twice, by {before.__module__} and"
                f" {made.__module__}: rename one"
            )
        return made

    return remember


def registered(kind: Kind) -> list[str]:
    """All names of a kind, sorted."""
    return sorted(name for of, name in _REGISTERED if of == kind)


def lookup(kind: Kind, name: str) -> Callable[..., Any]:
    """What was registered; raises ConfigError, with the nearest names, where nothing was."""
    try:
        return _REGISTERED[kind, name]
    except KeyError:
        near = get_close_matches(name, registered(kind), n=1) or registered(kind) or ["none"]
        raise ConfigError(
            f"{kind} {name} is not registered (registered: {', '.join(near)}):"
            " add the module that registers it to user.modules"
        ) from None


def import_user_modules(user: User) -> None:
    """Imports `user.modules`, found in `user.path` first; raises ConfigError for a missing one."""
    if user.modules and user.path not in sys.path:
        sys.path.insert(0, user.path)
    for module in user.modules:
        with blamed(f"user.modules=[{module}]"):
            try:
                importlib.import_module(module)
            except ModuleNotFoundError as error:
                raise ConfigError(
                    f"user.modules: {module} cannot be imported ({error}): set user.path to its"
                    " folder"
                ) from error


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Where code of the user's raises, or wants to end the process, tells it in one sentence.

    The sentence names the lines of that code, the innermost first.
    """
    try:
        yield
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(f"{what} failed with {said}{_where(error)}: mend it") from error


def _where(error: BaseException) -> str:
    frames = [f for f in extract_tb(error.__traceback__) if not f.filename.startswith(_FOREIGN)]
    lines = [f"{Path(f.filename).name}:{f.lineno}, {f.name}" for f in reversed(frames)]
    return f" ({' from '.join(lines)})" if lines else ""


_FOREIGN = (
    *("<frozen", str(Path(__file__).parent)),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
)
"""Where no code of a user's lies that they could mend."""
