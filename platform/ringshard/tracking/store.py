"""The MLflow store of an output root: made once, under a lock, before any run starts.

`python -m ringshard.tracking.store URI EXPERIMENT` is what the launcher runs. Opening one fresh
sqlite file from several processes breaks it for good, so the file is made aside and renamed.
"""

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import FileLock

from ringshard import child
from ringshard.config.secrets import refuse_password
from ringshard.errors import ConfigError, first_line

_DATABASES = ("postgresql", "mysql", "mssql")
"""What MLflow would open by itself, with its files in whatever folder a process happens to be."""
_READY = "ringshard.mlflow"
"""Tag of an experiment: the MLflow version that last brought the database up to date."""
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # MLflow would block for minutes: the shipper retries
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
}


def connect(uri: str) -> Any:
    """An MlflowClient that tells nobody, gives up after 5 s and never tries again by itself."""
    os.environ.update(ENVIRONMENT)
    from mlflow import MlflowClient

    return MlflowClient(uri)


@contextmanager
def told_in_a_sentence(what: str, fix: str) -> Iterator[None]:
    """Raises ConfigError for whatever the client raises, of which MLflow has no list."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{what} ({why(error)}): {fix}") from error


def why(error: Exception) -> str:
    """What a client raised, in words."""
    if "Invalid Host header" in str(error):  # of a server that answers nobody but localhost
        return "the server refuses this hostname, start it with --allowed-hosts"
    return first_line(error)


def ensure(uri: str, experiment: str) -> None:
    """Make or upgrade the sqlite database and the experiment; costs nothing where both are there.

    A server, which may be down when a run starts, is left to the shipper.
    """
    check(uri)
    if uri.startswith("sqlite:"):
        path = sqlite_path(uri)
        if not _is_ready(path, experiment):
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{path}.lock"):
                if not _is_ready(path, experiment):
                    _prepare(uri, path, experiment)


def check(uri: str) -> None:
    """Raise ConfigError unless MLflow can keep runs at this address."""
    refuse_password(uri)
    scheme = uri.partition("://")[0].partition("+")[0]
    if "://" not in uri or scheme == "file":
        raise ConfigError(
            f"tracking.uri={uri} is a file store, which MLflow no longer supports: use "
            f"sqlite:///{Path('mlflow.db').absolute()} or tracking.backend=jsonl"
        )
    if scheme in _DATABASES:
        raise ConfigError(
            f"tracking.uri={uri} is a database, which only a server opens: start one on it "
            "(infra/mlflow/up.sh) and use http://HOST:PORT"
        )
    if scheme not in ("sqlite", "http", "https"):
        raise ConfigError(
            f"tracking.uri={uri} has an unknown scheme: use sqlite:///FILE or http://HOST:PORT"
        )
    if scheme == "sqlite":
        sqlite_path(uri)


def sqlite_path(uri: str) -> Path:
    """The file of a `sqlite:///FILE` address."""
    path = uri.removeprefix("sqlite:///").partition("?")[0]
    if not uri.startswith("sqlite:///") or path in ("", ":memory:"):
        raise ConfigError(
            f"tracking.uri={uri} names no file: use sqlite:////ABSOLUTE/PATH/mlflow.db"
        )
    return Path(path)


def experiment_id(client: Any, uri: str, name: str) -> str:
    """The id of an experiment, which is made if need be; others may do so at the same time."""
    from mlflow.exceptions import MlflowException

    if (found := client.get_experiment_by_name(name)) is None:
        try:
            return str(client.create_experiment(name, _artifact_location(uri)))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            found = client.get_experiment_by_name(name)
    if found.lifecycle_stage != "active":
        raise ConfigError(
            f"tracking.experiment={name} was deleted in MLflow: restore it or take another name"
        )
    return str(found.experiment_id)


def _artifact_location(uri: str) -> str | None:
    """Beside an sqlite file (MLflow's own default is the current folder); a server has its own."""
    return str(sqlite_path(uri).absolute().parent / "mlartifacts") if uri[:6] == "sqlite" else None


def _is_ready(path: Path, experiment: str) -> bool:
    """Whether this MLflow version has prepared the experiment, asked without importing MLflow."""
    query = (
        "SELECT 1 FROM experiments JOIN experiment_tags USING (experiment_id) "
        "WHERE name = ? AND lifecycle_stage = 'active' AND key = ? AND value = ?"
    )
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as database:
            row = database.execute(query, (experiment, _READY, version("mlflow"))).fetchone()
            return row is not None
    except sqlite3.Error:
        return False


def _prepare(uri: str, path: Path, experiment: str) -> None:
    if path.exists():
        _upgrade(uri)
    else:
        fresh = path.with_name(path.name + ".new")
        fresh.unlink(missing_ok=True)
        _upgrade(f"sqlite:///{fresh}")
        fresh.replace(path)
    client = connect(uri)
    client.set_experiment_tag(experiment_id(client, uri, experiment), _READY, version("mlflow"))


def _upgrade(uri: str) -> None:
    """What `mlflow db upgrade` does: make all tables, or bring them up to date."""
    os.environ.update(ENVIRONMENT)
    from alembic.util import CommandError
    from mlflow.db import upgrade
    from sqlalchemy.exc import SQLAlchemyError

    try:
        upgrade.callback(uri)
    except (CommandError, SQLAlchemyError) as error:
        raise ConfigError(
            f"tracking.uri={uri} is no database of MLflow {version('mlflow')} or older"
            f" ({first_line(error)}): take another file"
        ) from error


def main() -> int:
    """Prepare the store named on the command line; 2 with one sentence if its address is wrong."""
    return child.answer(lambda: ensure(*sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
