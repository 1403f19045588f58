"""Where the wall time of a run went: the parts sum to it, whatever happened to the run."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from report.folders import made
from runs import run_attempt, small_job

from ringshard.checkpoint import directory
from ringshard.checkpoint.manifest import MANIFEST
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.state import State
from ringshard.report import history, record
from ringshard.report.curve import Curve
from ringshard.report.goodput import PARTS, Attempt, Goodput, goodput

Segment = dict[str, Curve]


def curve(points: list[tuple[int, float, float]]) -> Curve:
    """Of (step, time, value)."""
    steps, times, values = zip(*points, strict=True)
    return Curve(np.array(steps), np.array(times, float), np.array(values, float))


def trained(first: int, reports: list[tuple[int, float]], step_s: float, **more: Curve) -> Segment:
    """Steps from `first` on, reported at (last step, time); data are waited for a tenth of it."""
    losses = [(step, reports[0][1], 1.0) for step in range(first, reports[-1][0] + 1)]
    return {
        "train/loss": curve(losses),
        "perf/step_s": curve([(step, time, step_s) for step, time in reports]),
        "perf/data_wait": curve([(step, time, 0.1) for step, time in reports]),
        **more,
    }


def seconds(parts: Goodput) -> dict[str, float]:
    return {name: value for name, value in parts.seconds.items() if value}


def test_time_of_a_run_is_counted_twice_or_not_at_all() -> None:
    """Queued 10 s, begun at 110; 20 steps of 1 s, an evaluation of 3 s and a save of 2 s between
    the reports at 125 and 140; dead at 146; submitted again at 160 from step 10."""
    first = trained(
        1,
        [(10, 125.0), (20, 140.0)],
        1.0,
        **{
            "val/seconds": curve([(12, 130.0, 3.0)]),
            "checkpoint/stall_s": curve([(10, 127.0, 2.0)]),
        },
    )
    second = trained(11, [(30, 200.0)], 1.0)
    attempts = [
        Attempt(110.0, submitted=100.0, ended=146.0, failed=True, segments=[first]),
        Attempt(165.0, submitted=160.0, ended=203.0, segments=[second]),
    ]
    found = goodput(attempts, None, now=0.0)
    assert seconds(found) == {
        "queue": 10 + 5,
        "startup": 5 + 15,
        "training": 9 + 18,  # the first ten steps, and the last twenty, without their data
        "data": 1 + 2,
        "lost": 10 + 6,  # ten steps were trained again; what it did after the last report
        "evaluation": 3,
        "checkpoint": 2,
        "idle": 14,
        "other": 3,
    }
    assert found.wall_ms == 103_000


def test_a_job_queued_again_was_idle_and_one_that_waits_has_not_waited() -> None:
    """The submission stays the first one's: between its attempts it is in the queue."""
    attempts = [
        Attempt(110.0, 100.0, 150.0, segments=[trained(1, [(10, 140.0)], 3.0)]),
        Attempt(170.0, 100.0, 180.0),
    ]
    assert seconds(goodput(attempts, 100.0, now=200.0)) == {
        "queue": 10 + 20 + 20,
        "training": 27,
        "data": 3,
        "other": 20,
    }
    assert seconds(goodput([], 100.0, now=130.0)) == {"queue": 30}
    assert goodput([], None, now=130.0).wall_ms == 0


def test_ranks_started_again_in_place_lose_nothing() -> None:
    """Their second start trains steps 6 to 10 again."""
    segments = [trained(1, [(10, 120.0)], 1.0), trained(6, [(10, 140.0)], 1.0)]
    found = seconds(goodput([Attempt(100.0, None, 141.0, segments=segments)], None, 0.0))
    assert found == {"startup": 25, "training": 9, "data": 1, "lost": 5, "other": 1}


def test_an_attempt_that_failed_before_its_first_step_has_lost_training() -> None:
    assert seconds(goodput([Attempt(100.0, None, 107.0, failed=True)], None, 0.0)) == {"startup": 7}


def test_a_run_that_has_just_begun_was_in_the_queue_all_the_time(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.attempt(1).mkdir(parents=True)
    for name, at in {"submitted": time.time() - 40, "started": time.time() - 10}.items():
        (run.attempt(1) / f"{name}.json").write_text(json.dumps({"time": at}))
    found = seconds(history.of_run(run, record.read(run.path), State.running))
    assert found == {"queue": pytest.approx(30, abs=1), "startup": pytest.approx(10, abs=1)}


def test_a_run_that_died_for_good_has_lost_nothing(tmp_path: Path) -> None:
    """Twenty steps of 1 s, a tenth of it data, of which a checkpoint holds ten."""
    run = RunDir(made(tmp_path, "run", marker="FAILED"))
    checkpoint = directory.of_step(run.path / "checkpoints", 10)
    checkpoint.mkdir(parents=True)
    (checkpoint / MANIFEST).touch()
    recorded = record.read(run.path)
    told = {"training": 9, "data": 1, "startup": 5}
    found = history.of_run(run, recorded, State.failed)
    assert seconds(found) == {**told, "lost": 10 + 1}
    assert history.tracked(run).metrics == found.metrics()
    at_work = history.of_run(run, recorded, State.running)
    assert seconds(at_work) == {"training": 18, "data": 2, "startup": 5, "lost": 1}


def test_the_outage_after_a_node_died_was_shutting_down(tmp_path: Path) -> None:
    """Of two nodes the one with the agent lives on: it is told to end while its ranks hang."""
    run = RunDir(made(tmp_path, "run", marker="KILLED"))
    (run.attempt(1) / "result.json").unlink()
    end = json.loads((run.attempt(1) / "exit.json").read_text())
    (run.attempt(1) / "exit.json").write_text(json.dumps(end | {"time": end["time"] + 60}))
    found = seconds(history.of_run(run, record.read(run.path), State.pending))
    assert (found["lost"], found.get("other")) == (60 + 1, None)


moments = st.floats(0, 1e6).map(lambda t: round(t, 3))
spans = st.one_of(st.floats(0, 1e5), st.just(float("nan")), st.just(float("inf")))


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    """Times in any order, durations longer than the time there was, or no number at all."""
    first = draw(st.integers(1, 50))
    steps = sorted(draw(st.sets(st.integers(first, first + 9), min_size=1, max_size=4)))
    told: Segment = {
        "train/loss": curve([(s, draw(moments), 1.0) for s in range(first, steps[-1] + 1)])
    }
    told["perf/step_s"] = curve([(s, draw(moments), draw(spans)) for s in steps])
    for key in ("perf/data_wait", "val/seconds", "checkpoint/stall_s", "checkpoint/finish_s"):
        if draw(st.booleans()):
            told[key] = curve([(s, draw(moments), draw(spans)) for s in steps])
    return draw(st.sampled_from([told, {}, {"train/lr": told["train/loss"]}]))


attempts = st.builds(
    Attempt,
    started=moments,
    submitted=st.none() | moments,
    ended=st.none() | moments,
    failed=st.booleans(),
    segments=st.lists(segments(), max_size=2),
)


WAITS_FOR_LONGER_THAN_IT_STEPS = {
    "train/loss": curve([(1, 0.0, 1.0)]),
    "perf/step_s": curve([(1, 0.0, 1.0)]),
    "perf/data_wait": curve([(1, 0.0, 2.0)]),
}


@settings(max_examples=60)
@example([Attempt(0.0, segments=[WAITS_FOR_LONGER_THAN_IT_STEPS])], None, 0.0)
@given(st.lists(attempts, max_size=3), st.none() | moments, moments)
def test_parts_do_not_sum_to_the_wall_time(
    history: list[Attempt], waits_since: float | None, now: float
) -> None:
    """Whatever clocks and records say: from the first sign to the latest one, in milliseconds."""
    found = goodput(history, waits_since, now)
    assert set(found.parts) == set(PARTS) and min(found.parts.values()) >= 0
    signs = _signs(history, waits_since, now)
    wall = round(1000 * max(signs)) - round(1000 * signs[0]) if signs else 0
    assert found.wall_ms == sum(found.parts.values()) == max(wall, 0)


_TOLD = ("perf/step_s", "val/seconds", "checkpoint/stall_s", "checkpoint/finish_s")


def _signs(history: list[Attempt], waits_since: float | None, now: float) -> list[float]:
    """Every time that a history tells, the begin first."""
    signs = [t for a in history[:1] for t in (a.submitted, a.started) if t is not None]
    signs = [min(signs)] if signs else []
    for attempt in history:
        signs += [attempt.started] + ([] if attempt.ended is None else [attempt.ended])
        for segment in attempt.segments:
            signs += [t for key in _TOLD if key in segment for t in segment[key].times.tolist()]
    if waits_since is not None:
        signs += [now] if history else [min(waits_since, now), now]
    return signs


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A real run that died in step 7 and went on from step 4, as its agent would note it."""
    folder = tmp_path_factory.mktemp("goodput")
    run, job = RunDir(folder / "run"), small_job(folder)
    for number, die_before in ((1, 7), (2, None)):
        began = time.time()
        run_attempt(job, run.path, number, die_before=die_before)
        (run.attempt(number) / "started.json").write_text(json.dumps({"time": began}))
        run.finish(number, Outcome.failed if die_before else Outcome.done, {"time": time.time()})
    return run


def test_a_real_run_does_not_tell_where_its_time_went(resumed: RunDir) -> None:
    recorded = record.read(resumed.path)
    found = history.of_run(resumed, recorded, State.done)
    first, last = (json.loads((resumed.attempt(n) / "started.json").read_text()) for n in (1, 2))
    end = json.loads((resumed.attempt(2) / "exit.json").read_text())["time"]
    assert found.wall_ms == round(1000 * end) - round(1000 * first["time"])
    assert first["time"] < last["time"] < end
    expected = {"training", "lost", "evaluation", "checkpoint", "startup"}
    assert expected <= {part for part, ms in found.parts.items() if ms > 0}
    tells = {key for segment in recorded.segments for key in segment.curves}
    assert {"val/seconds", "checkpoint/stall_s", "checkpoint/finish_s", "train/flops"} <= tells
