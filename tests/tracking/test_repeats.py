"""Steps trained again are sent once, and told where they are not the bits of the first time."""

import json
from typing import Any

from tracking.shipped import expected, history, remote, ship

MISMATCH = "resume/mismatch"


def resumed(run: Any, factor: float = 1.0) -> None:
    """Steps 5 to 7 are trained again, `factor` times as large."""
    run.attempt(1)
    run.train(1, range(8))
    run.end(1, "killed")
    run.attempt(2)
    run.train(2, range(5, 8), factor)
    run.train(2, range(8, 10))
    run.end(2, "done")


def test_a_step_trained_again_is_doubled_or_its_check_is_not_recorded(run: Any) -> None:
    resumed(run)
    ship(run, attempt=2)
    assert history(run) == expected(10)
    assert history(run, MISMATCH) == [(5, 0.0), (6, 0.0), (7, 0.0)]
    assert "ringshard.mismatch" not in remote(run).data.tags


def test_a_step_that_comes_out_otherwise_goes_unnoticed(run: Any, capsys: Any) -> None:
    resumed(run, factor=0.5)
    ship(run, attempt=2)
    assert history(run) == expected(10)
    assert history(run, MISMATCH) == [(5, 0.5), (6, 0.5), (7, 0.5)]
    tag = remote(run).data.tags["ringshard.mismatch"]
    assert tag == "3 steps trained again came out otherwise"
    assert "spool-2.0-rank0.jsonl: step 5 was trained again" in capsys.readouterr().out


def test_another_topology_is_reported_as_a_mismatch(run: Any) -> None:
    run.attempt(1)
    run.train(1, range(8))
    run.end(1, "killed")
    run.job.hardware.processes_per_node = 4
    run.attempt(2)
    run.train(2, range(5, 10), factor=1.0000001)
    ship(run, attempt=2)
    assert history(run, MISMATCH) == []


def test_other_code_is_reported_as_a_mismatch(run: Any) -> None:
    for attempt, commit in ((1, "a"), (2, "b")):
        folder = run.attempt(attempt)
        (folder / "code.json").write_text(json.dumps({"git": commit}))
        run.train(attempt, range(4), factor=float(attempt))
        run.end(attempt, "killed")
    ship(run, attempt=2)
    assert history(run, MISMATCH) == []


def test_what_is_measured_anew_each_time_counts_as_a_mismatch(run: Any) -> None:
    from ringshard.tracking.spool import Spool

    for attempt in (1, 2):
        run.attempt(attempt)
        Spool(run.path, attempt).log(3, {"train/loss": 1.0, "perf/step_s": float(attempt)})
        run.end(attempt, "killed")
    ship(run, attempt=2)
    assert history(run, MISMATCH) == [(3, 0.0)]
