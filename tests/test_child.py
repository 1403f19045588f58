"""A module asked in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from ringshard import child
from ringshard.config.schema.job import User
from ringshard.config.schema.reader import plain
from ringshard.errors import ConfigError
from ringshard.launch import own_code

ASKED = "ringshard.launch.own_code"


def test_a_module_in_the_users_folder_does_not_shadow_pythons_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.chdir(tmp_path)
    assert set(child.ask(ASKED, about=plain(User()))) == {"model", "optimizer", "corpus", "hook"}


def test_a_mistake_and_a_failure_come_back_as_they_were_said(tmp_path: Path) -> None:
    nowhere = plain(User(modules=["nowhere"], path=str(tmp_path)))
    with pytest.raises(ConfigError, match="nowhere cannot be imported"):
        child.ask(ASKED, about=nowhere)
    with pytest.raises(child.ChildError) as failed:
        child.ask(ASKED, about={"modles": []})
    assert failed.value.code == 1 and "Traceback" in str(failed.value)
    assert "modles" in failed.value.last_line


def test_a_stale_environment_does_not_reach_a_child() -> None:
    shell = {"RANK": "7", "SLURM_JOB_ID": "1", "MLFLOW_RUN_ID": "x", "HOME": "/home/me"}
    kept = child.environment(shell)
    assert kept["HOME"] == "/home/me" and not {"RANK", "SLURM_JOB_ID", "MLFLOW_RUN_ID"} & set(kept)


def test_mlflow_tells_its_makers_of_a_run() -> None:
    """By its own judgement; a test or a CI, whose variables a clean shell lacks, is never told."""
    asked = "from mlflow.telemetry.utils import is_telemetry_disabled as off; print(off())"
    shell = {"MLFLOW_DISABLE_TELEMETRY": "false", "DO_NOT_TRACK": "0"}
    command, environment = [sys.executable, "-c", asked], child.environment(shell)
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout == "True\n"


def test_twenty_members_import_the_users_modules_once(tmp_path: Path) -> None:
    said = tmp_path / "imported"
    (tmp_path / "counted.py").write_text(f"print('once', file=open({str(said)!r}, 'a'))")
    user = own_code.json.dumps(plain(User(modules=["counted"], path=str(tmp_path))))
    assert own_code._registered(user) == own_code._registered(user)
    assert said.read_text() == "once\n"
