"""Known bugs of reports: of what is drawn, counted and grouped."""

from mutations.planted import Bug

REPORT = "platform/ringshard/report"
RECORD = "tests/report/test_record.py::test_"
COMPARED = "tests/report/test_compared.py::test_"
GOODPUT = "tests/report/test_goodput.py::test_"

BUGS = [
    Bug(
        "a peak is thinned away",
        f"{REPORT}/curve.py",
        "starts + np.where(broken, -np.inf, rows).argmax(1)",
        "starts + np.where(broken, np.inf, rows).argmin(1)",
        f"{RECORD}thinning_hides_a_peak_or_a_gap",
    ),
    Bug(
        "a step that was trained again is drawn twice",
        f"{REPORT}/record.py",
        "curve.without(np.concatenate(before)) if before else curve",
        "curve",
        f"{RECORD}columns_differ_from_the_lines",
    ),
    Bug(
        "starts of an attempt are one in MLflow",
        f"{REPORT}/mlflow_runs.py",
        "np.sort(told.times[told.values == newest])",
        "np.sort(told.times[told.values == newest])[:1]",
        "tests/report/test_mlflow.py::test_speed_in_mlflow_is_another_than_that_of_the_folder"
        "[started again in place]",
    ),
    Bug(
        "training that was lost counts as kept",
        f"{REPORT}/goodput.py",
        "limit = min(limit, float(",
        "limit = max(limit, float(",
        f"{GOODPUT}time_of_a_run_is_counted_twice_or_not_at_all",
    ),
    Bug(
        "time between reports that nobody claims is dropped",
        f"{REPORT}/goodput.py",
        "clock.spend(rest, event.time_ms - sum(taken.values()))",
        "clock.now_ms = max(clock.now_ms, event.time_ms - sum(taken.values()))",
        f"{GOODPUT}parts_do_not_sum_to_the_wall_time",
    ),
    Bug(
        "the best run is one that diverged",
        f"{REPORT}/compare.py",
        """if value is not None and math.isfinite(value) and "diverged" not in run.state""",
        "if value is not None and math.isfinite(value)",
        "tests/report/test_compare.py::test_the_best_of_runs_is_one_that_diverged",
    ),
    Bug(
        "speed is of all attempts, whatever hardware they had",
        f"{REPORT}/runs.py",
        "if s.is_of_ranks(self.attempt)",
        "if s.is_of_ranks(s.attempt)",
        f"{COMPARED}speed_mixes_attempts_on_other_hardware_or_counts_how_ranks_warm_up",
    ),
    Bug(
        "steps behind the newest checkpoint of a dead run are kept",
        f"{REPORT}/history.py",
        "return math.inf if keeps_all else run.newest_step()",
        "return math.inf",
        f"{GOODPUT}a_run_that_died_for_good_has_lost_nothing",
    ),
]
