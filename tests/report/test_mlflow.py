"""Runs read from MLflow are those of the folders that were shipped to it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report.commands import ringshard
from report.folders import CREATED, Reports, made, rated

from ringshard.errors import ConfigError
from ringshard.report import mlflow_points
from ringshard.report.compare import notes
from ringshard.report.compared import along, mfu, step, tokens_per_s
from ringshard.report.groups import differences
from ringshard.report.mlflow_points import Points
from ringshard.report.mlflow_runs import RemoteRun
from ringshard.report.mlflow_runs import find as find_in_mlflow
from ringshard.report.runs import Run, find
from ringshard.tracking import shipper, store
from ringshard.tracking.batches import ATTEMPT


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Run], list[RemoteRun], str]:
    """Three runs, one of which has a NaN, in folders and in MLflow."""
    root = tmp_path_factory.mktemp("both")
    for n, wiggle in enumerate((0.0, 0.5, float("nan"))):
        made(root, f"run-{n}", CREATED + n, optimizer__lr=0.1 * (n + 1), wiggle=wiggle)
    uri = f"sqlite:///{root / 'mlflow.db'}"
    runs = find([root])
    for run in runs:
        shipper.sync(run.dir.path, 1, uri, "mine")
    remote = find_in_mlflow(uri, ["mine"])
    return runs, sorted(remote, key=lambda run: run.name), uri


def test_a_run_of_mlflow_is_another_than_the_folder_it_came_from(
    both: tuple[list[Run], list[RemoteRun], str],
) -> None:
    """Curves, configuration, state, axes, and where the time went."""
    for here, there in zip(*both[:2], strict=True):
        assert (there.name, there.state, step(there)) == (here.name, here.state, step(here))
        assert set(there.curves) - set(here.curves) == {ATTEMPT, *here.goodput.metrics()}
        for key, curve in here.curves.items():
            other = there.curves[key]
            assert np.array_equal(other.steps, curve.steps)
            assert np.array_equal(other.values, curve.values, equal_nan=True)
            assert np.allclose(along(there, key, other, "flops"), along(here, key, curve, "flops"))
        assert there.config == here.config
        assert there.goodput is not None and there.goodput.parts == here.goodput.parts
        assert there.faults == []
    runs, remote, _ = both
    assert differences(remote) == ["optimizer.lr"]
    told = [notes(some, "train/loss") for some in (runs, remote)]
    assert told[0] == told[1] and "NaN" in told[0][0]


def test_whether_a_metric_is_there_is_asked_by_reading_it(
    both: tuple[list[Run], list[RemoteRun], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that is read is read of all runs together, and never again."""
    (run, *others) = find_in_mlflow(both[2], ["mine"])
    asked: list[str] = []
    read = Points._read

    def noted(self: Points, runs: list[str], key: str) -> Any:
        asked.append(key)
        return read(self, runs, key)

    monkeypatch.setattr(Points, "_read", noted)
    assert "val/loss" in run.curves and "val/other" not in run.curves and asked == []
    assert run.curves["val/loss"] is run.curves["val/loss"] and asked == ["val/loss"]
    assert all(len(other.curves["val/loss"]) for other in others) and asked == ["val/loss"]


def test_points_of_a_file_are_others_than_mlflow_gives(
    both: tuple[list[Run], list[RemoteRun], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file that it alone can read, and of a server, which is asked for several at once."""
    of_file = find_in_mlflow(both[2], ["mine"])
    with monkeypatch.context() as patch:
        patch.setattr(mlflow_points, "_OF_ONE", "SELECT * FROM other_tables WHERE a = ? AND b = ?")
        by_mlflow = find_in_mlflow(both[2], ["mine"])
        for here, there in zip(of_file, by_mlflow, strict=True):
            for key, curve in there.curves.items():
                other = here.curves[key]
                assert np.array_equal(other.steps, curve.steps)
                assert np.array_equal(other.times, curve.times)
                assert np.array_equal(other.values, curve.values, equal_nan=True)


def test_a_command_reads_one_run_or_a_whole_experiment(
    both: tuple[list[Run], list[RemoteRun], str],
) -> None:
    uri = both[2]
    done = ringshard("compare", "--uri", uri, "run-0", "run-1")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(" run-")]
    assert [row[0] for row in rows] == ["run-0", "run-1"] and rows[1][4:6] == ["*1.5", "*1.52"]


def test_a_sweep_is_its_parent_run_or_brings_runs_of_other_programs(
    both: tuple[list[Run], list[RemoteRun], str], tmp_path: Path
) -> None:
    uri = both[2]
    for n in range(2):
        run = made(tmp_path, f"member-{n}", CREATED + n)
        about = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(about | {"sweep": "runs"}))
        shipper.sync(run, 1, uri, "shared")
    client = store.connect(uri)
    shared = client.get_experiment_by_name("shared")
    client.create_run(shared.experiment_id, run_name="of another program")
    for name in ("runs", "shared"):
        assert [run.name for run in find_in_mlflow(uri, [name])] == ["member-0", "member-1"]


FIRST: Reports = [(10, 1000, 10.0), (20, 2000, 100.0), (30, 3000, 100.0)]
AGAIN: Reports = [(30, 3000, 1.0), (40, 4000, 2.0), (50, 5000, 700.0), (60, 6000, 500.0)]


@pytest.mark.parametrize(
    "starts",
    [
        pytest.param([(1, 0, FIRST)], id="one start"),
        pytest.param([(1, 0, FIRST), (1, 1, AGAIN)], id="started again in place"),
        pytest.param([(1, 0, FIRST), (2, 0, AGAIN)], id="queued again"),
        pytest.param([(1, 0, FIRST), (2, 0, AGAIN), (2, 1, [(60, 6000, 3.0)])], id="twice"),
        pytest.param([(1, 0, FIRST), (2, 0, [])], id="nothing yet"),
    ],
)
def test_speed_in_mlflow_is_another_than_that_of_the_folder(
    starts: list[tuple[int, int, Reports]],
    both: tuple[list[Run], list[RemoteRun], str],
    tmp_path: Path,
) -> None:
    path = rated(tmp_path, *starts)
    shipper.sync(path, starts[-1][0], both[2], tmp_path.name)
    (here,), (there,) = find([tmp_path]), find_in_mlflow(both[2], [tmp_path.name])
    assert tokens_per_s(there) == pytest.approx(tokens_per_s(here))
    assert mfu(there) == pytest.approx(mfu(here))


@pytest.mark.parametrize(
    ("uri", "names", "sentence"),
    [
        ("", ["theirs"], "MLflow knows no experiment, sweep or run theirs: .* mine"),
        ("sqlite:////nowhere/mlflow.db", ["mine"], "there is no such file"),
        ("http://127.0.0.1:9", ["mine"], "--uri http://127.0.0.1:9 does not answer"),
        ("./mlruns", ["mine"], "is a file store"),
    ],
)
def test_an_address_that_is_wrong_is_a_traceback(
    uri: str,
    names: list[str],
    sentence: str,
    both: tuple[list[Run], list[RemoteRun], str],
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        find_in_mlflow(uri or both[2], names)
    assert not Path("/nowhere").exists()
