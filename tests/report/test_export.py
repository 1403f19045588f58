"""A comparison for scripts: any JSON reader takes it, and what is not a number is said."""

import csv
import io
import json
from functools import partial
from pathlib import Path

import pytest
from report.commands import ringshard
from report.folders import CREATED, made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make = partial(made, tmp_path / "a")
    make("one", optimizer__lr=0.1, train__seed=1)
    make("two", CREATED + 1, optimizer__lr=0.1, train__seed=2)
    made(tmp_path / "b", "one", CREATED + 2, optimizer__lr=0.2, wiggle=float("nan"))
    return tmp_path


def refused(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def test_a_script_reads_nan_or_loses_a_run_of_another_folder(root: Path) -> None:
    done = ringshard("compare", root / "a", root / "b", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout, parse_constant=refused)
    assert told["differs"] == ["optimizer.lr", "train.seed"]
    runs = told["runs"]
    assert [(run["run"], run["group"]) for run in runs] == [("one", 0), ("two", 0), ("one", 1)]
    assert [Path(run["place"]).parent.parent.name for run in runs] == ["a", "a", "b"]
    assert runs[0]["train/loss"] == pytest.approx(5 / 3) and runs[0]["not_finite"] == ""
    assert (runs[2]["train/loss"], runs[2]["not_finite"]) == (None, "train/loss val/loss")
    parts = {key: value for key, value in runs[0].items() if key.startswith("goodput/")}
    assert sum(parts.values()) == pytest.approx(26)
    assert any("NaN or infinite" in note for note in told["notes"])


def test_csv_and_json_tell_different_things(root: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(ringshard("compare", root, "--csv").stdout)))
    told = json.loads(ringshard("compare", root, "--json").stdout)["runs"]
    as_text = [{k: "" if v is None else str(v) for k, v in run.items()} for run in told]
    assert rows == as_text
    done = ringshard("compare", root, "--csv", "--json")
    assert (done.returncode, done.stderr) == (2, "--json and --csv: stdout takes one of them\n")


def test_a_file_that_is_written_beside_spoils_the_json(root: Path) -> None:
    done = ringshard("compare", root, "--json", "--png", root / "x.png")
    assert json.loads(done.stdout)["runs"] and done.stderr == f"curves: {root / 'x.png'}\n"


def test_runs_of_the_same_name_cannot_be_told_apart(root: Path) -> None:
    lines = ringshard("compare", root / "a", root / "b").stdout
    assert f"one ({root / 'a/runs/one'})" in lines and f"one ({root / 'b/runs/one'})" in lines
