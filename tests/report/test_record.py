"""Metrics read as columns are those that the spool holds, line by line."""

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringshard.launch.progress import progress
from ringshard.report import record
from ringshard.report.curve import Curve, thinned
from ringshard.tracking.spool import Spool, read_spool, spools

Line = tuple[int, dict[str, float]]


def slow(run_dir: Path) -> dict[str, list[tuple[int, float]]]:
    """The same as the shipper reads it: record by record, without what is known already."""
    found: dict[str, list[tuple[int, float]]] = {}
    for spool in spools(run_dir):
        for told, _ in read_spool(spool.path):
            for key, value in (spool.fresh(told) if told else {}).items():
                found.setdefault(key, []).append((told.step if told else 0, value))
    return {key: sorted(points, key=lambda point: point[0]) for key, points in found.items()}


def same(curves: dict[str, Curve], other: dict[str, list[tuple[int, float]]]) -> bool:
    """NaN equals NaN."""
    told = {
        k: list(zip(c.steps.tolist(), c.values.tolist(), strict=True)) for k, c in curves.items()
    }
    return repr(told) == repr({key: other[key] for key in told}) and set(told) == set(other)


lines = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.dictionaries(st.sampled_from(["train/loss", "val/loss", "lr"]), st.floats(), max_size=3),
    ),
    max_size=12,
)


@given(st.lists(st.tuples(st.sampled_from(["rank0", "node-1"]), lines), max_size=4))
def test_columns_differ_from_the_lines(starts: list[tuple[str, list[Line]]]) -> None:
    """Of several attempts and writers, with values that JSON does not know."""
    with tempfile.TemporaryDirectory() as folder:
        for attempt, (writer, told) in enumerate(starts, 1):
            spool = Spool(Path(folder), attempt, writer)
            for step, metrics in told:
                spool.log(step, metrics)
            spool.close()
        assert same(record.read(Path(folder)).curves(), slow(Path(folder)))


def test_damaged_and_refused_lines_are_passed_over_in_silence(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1)
    for step in range(1, 6):
        spool.log(step, {"train/loss": 1.0})
    spool.dropped = 3
    spool.log(6, {"train/loss": 2.0})
    spool.close()
    text = spool.path.read_bytes().replace(b'"step":2', b'"step":9')
    spool.path.write_bytes(text + b'{"time":1.0,"step":7,"metr')  # being written
    found = record.read(tmp_path)
    assert (found.damaged, found.dropped) == (1, 3)
    assert found.curves()["train/loss"].steps.tolist() == [1, 3, 4, 5, 6]


def test_steps_that_the_disk_refused_once_are_missing_after_they_are_trained_again(
    tmp_path: Path,
) -> None:
    for attempt, steps in ((1, [1, 2, 5, 6]), (2, [3, 4, 5, 6, 7])):
        spool = Spool(tmp_path, attempt)
        for step in steps:
            spool.log(step, {"train/loss": float(10 * attempt + step)})
    curves = record.read(tmp_path).curves()
    assert curves["train/loss"].values.tolist() == [11, 12, 23, 24, 15, 16, 27]
    assert same(curves, slow(tmp_path))


def test_an_empty_run_has_curves(tmp_path: Path) -> None:
    Spool(tmp_path, 1).close()
    Spool(tmp_path, 2).log(1, {})
    assert record.read(tmp_path).curves() == {}
    assert record.read(tmp_path / "nowhere").curves() == {}


@given(lines)
def test_a_run_is_elsewhere_than_its_last_lines_say(told: list[Line]) -> None:
    """The newest step, and the newest of its metrics, whatever is damaged or half written."""
    with tempfile.TemporaryDirectory() as folder:
        spool = Spool(Path(folder), 1)
        for step, metrics in told:
            spool.log(step, metrics)
        spool.close()
        with spool.path.open("ab") as file:
            file.write(b'{"damaged"}\n{"time":1.0,"step":99')
        records = [record for record, _ in read_spool(spool.path) if record]
        newest = {key: value for record in records for key, value in record.metrics.items()}
        found = progress(Path(folder))
        assert repr(found.loss) == repr(newest.get("train/loss"))
        if "train/loss" not in newest:  # else earlier lines may be left unread
            assert found.step == max((record.step for record in records), default=0)


values = st.lists(
    st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf])), max_size=200
)


@given(values, st.integers(1, 12))
def test_thinning_hides_a_peak_or_a_gap(told: list[float], buckets: int) -> None:
    """Every stretch keeps its least and greatest value, one that is not finite, and the ends."""
    column = np.array(told, float)
    places = thinned(column, buckets)
    assert places.tolist() == sorted(set(places.tolist())) and len(places) <= 3 * buckets + 2
    if len(told) <= 2 * buckets:
        assert places.tolist() == list(range(len(told)))
        return
    assert {0, len(told) - 1} <= set(places.tolist())
    width = -(-len(told) // buckets)
    for begin in range(0, len(told), width):
        stretch = column[begin : begin + width]
        kept = column[places[(places >= begin) & (places < begin + width)]]
        finite = stretch[np.isfinite(stretch)]
        if len(finite):
            shown = kept[np.isfinite(kept)]
            assert (shown.min(), shown.max()) == (finite.min(), finite.max())
        assert np.isfinite(stretch).all() == np.isfinite(kept).all()


def test_the_value_at_a_step_is_a_later_one() -> None:
    curve = Curve(np.array([2, 4]), np.array([1.0, 2.0]), np.array([20.0, 40.0]))
    assert curve.at(np.array([2, 3, 4, 9])).tolist() == [20, 20, 40, 40]
    assert np.isnan(curve.at(np.array([1])))[0]
    assert curve.without(np.array([2])).values.tolist() == [40] == [curve.last]


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_not_counted(broken: float) -> None:
    assert Curve(np.array([1, 2]), np.zeros(2), np.array([broken, 1.0])).broken == 1
