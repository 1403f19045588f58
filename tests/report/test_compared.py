"""The numbers that stand for a run: of what it is now, and of training alone."""

from pathlib import Path

import numpy as np
import pytest
from report.folders import Reports, rated

from ringshard.report.compared import AXES, along, mfu, step, tokens_per_s
from ringshard.report.runs import find
from ringshard.tracking.spool import Spool

FIRST = (1, 0, [(10, 1000, 10.0), (20, 2000, 100.0), (30, 3000, 100.0)])


def test_speed_mixes_attempts_on_other_hardware_or_counts_how_ranks_warm_up(tmp_path: Path) -> None:
    """100 tokens at 200/s, and after the ranks were started again 300 at 600/s: 400 in a second."""
    second: Reports = [(40, 4000, 1.0), (41, 4100, 200.0)]
    third: Reports = [(42, 4200, 2.0), (45, 4500, 600.0)]
    rated(tmp_path, FIRST, (2, 0, second), (2, 1, third))
    (run,) = find([tmp_path])
    assert tokens_per_s(run) == pytest.approx(400)
    assert mfu(run) == pytest.approx(0.4)


def test_the_speed_of_an_attempt_that_has_reported_once_or_never(tmp_path: Path) -> None:
    rated(tmp_path / "once", (1, 0, [(10, 1000, 70.0)]))
    rated(tmp_path / "never", FIRST, (2, 0, []))
    once, never = find([tmp_path / "once", tmp_path / "never"])
    assert (tokens_per_s(once), mfu(once)) == (70, 0.07)
    assert (tokens_per_s(never), mfu(never)) == (None, None)


def test_seconds_that_a_node_notes_are_steps(tmp_path: Path) -> None:
    path = rated(tmp_path, (1, 0, [(10, 1000, 70.0)]))
    node = Spool(path, 1, writer="node-0")
    node.log(86_400, {"system/node-0/cpu_percent": 50.0})
    node.close()
    (run,) = find([tmp_path])
    assert step(run) == 10
    key = "system/node-0/cpu_percent"
    places = {axis: along(run, key, run.curves[key], axis) for axis in AXES}
    assert [axis for axis, column in places.items() if np.isfinite(column).any()] == ["time"]
