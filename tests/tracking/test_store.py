"""The MLflow store is made once, whoever asks first, and a bad address is one sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

from ringshard.errors import ConfigError
from ringshard.tracking import store


def start(uri: str, experiment: str = "ringshard") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ringshard.tracking.store", uri, experiment]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_four_members_that_start_at_once_share_one_database(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"
    members = [start(uri) for _ in range(4)]
    assert [member.communicate() for member in members] == [("", "")] * 4
    found = store.connect(uri).search_experiments(filter_string="name = 'ringshard'")
    assert len(found) == 1
    assert found[0].artifact_location == str(tmp_path / "new" / "mlartifacts")


def test_an_existing_store_is_not_opened_by_mlflow(database: Path) -> None:
    uri = f"sqlite:///{database}"
    code = f"import sys; from ringshard.tracking import store; store.ensure({uri!r}, 'ringshard'); "
    code += "print('mlflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_file_that_is_no_database_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("notes")
    with pytest.raises(ConfigError, match=r"file is not a database.*: take another file"):
        store.ensure(f"sqlite:///{tmp_path / 'mlflow.db'}", "ringshard")


def test_a_deleted_experiment_is_told_in_one_sentence(run) -> None:  # type: ignore[no-untyped-def]
    uri = run.job.tracking.uri
    client = store.connect(uri)
    client.delete_experiment(client.get_experiment_by_name("ringshard").experiment_id)
    with pytest.raises(ConfigError, match="was deleted in MLflow: restore it"):
        store.ensure(uri, "ringshard")


def test_the_old_file_store_is_refused_with_the_way_out() -> None:
    refused = start("./mlruns")
    assert refused.communicate() == (
        "",
        "tracking.uri=./mlruns is a file store, which MLflow no longer supports: use "
        f"sqlite:///{Path('mlflow.db').absolute()} or tracking.backend=jsonl\n",
    )
    assert refused.returncode == 2


@pytest.mark.parametrize(
    "uri", ["sqlite://", "sqlite:///:memory:", "ftp://host/x", "file:///tmp/x"]
)
def test_an_address_that_can_hold_no_runs_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match=f"tracking.uri={uri}"):
        store.check(uri)


@pytest.mark.parametrize("uri", ["postgresql://db/mlflow", "mysql+pymysql://db/mlflow"])
def test_files_of_a_run_in_a_database_fall_into_the_current_folder(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"is a database.*infra/mlflow/up.sh.*http://HOST:PORT"):
        store.check(uri)


def test_a_server_that_is_down_stops_no_start() -> None:
    store.ensure("http://127.0.0.1:9", "ringshard")
