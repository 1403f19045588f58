"""What may be done to a run."""

import json
from pathlib import Path

import pytest
from report.folders import made
from typer.testing import CliRunner

from ringshard.checkpoint.directory import pin
from ringshard.launch.housekeeping import NotCancelledError, attempts, cancel_all, why_kept
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.slurm import queue
from ringshard.launch.slurm.queue import SlurmError
from ringshard.launch.state import State
from ringshard.report.compare import columns
from ringshard.report.runs import Run
from ringshard.runs import app


def test_a_run_is_deleted_with_a_checkpoint_that_is_pinned(tmp_path: Path) -> None:
    assert why_kept(RunDir(tmp_path), State.done) == ""
    checkpoint = tmp_path / "checkpoints/step-00000300"
    checkpoint.mkdir(parents=True)
    pin(checkpoint, "paper")
    assert why_kept(RunDir(tmp_path), State.done) == "step-00000300 is pinned for paper"


def test_a_run_can_not_be_deleted_because_it_has_a_best_checkpoint(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints/step-00000300"
    checkpoint.mkdir(parents=True)
    pin(checkpoint, "best")
    assert why_kept(RunDir(tmp_path), State.done) == ""


def test_a_run_that_can_not_be_asked_keeps_others_from_being_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's, and one that Slurm refuses."""
    found = []
    for index in range(3):
        run = RunDir(tmp_path / f"run-{index}")
        run.attempt(1).mkdir(parents=True)
        submitted = {"submission": str(tmp_path), "index": index}
        (run.attempt(1) / "submitted.json").write_text(json.dumps(submitted))
        found.append(run)
    (tmp_path / "submission.json").write_text('{"job_id": 7}')
    ask = RunDir.ask_to_stop

    def refuse(run: RunDir, why: str | None) -> None:
        if run == found[0]:
            raise PermissionError(13, "Permission denied", "stop.json")
        ask(run, why)

    def scancel(*command: str) -> str:
        if "7_1" in command:
            raise SlurmError("Access denied")
        return ""

    monkeypatch.setattr(RunDir, "ask_to_stop", refuse)
    monkeypatch.setattr(queue, "call", scancel)
    told = cancel_all([(run, State.pending) for run in found])
    assert [isinstance(one, NotCancelledError) for one in told] == [True, True, False]
    assert found[1].why_stopped(1) is None and found[2].outcome() is Outcome.killed


def test_an_attempt_that_never_began_is_a_blank_row_and_its_job_has_another_number(
    tmp_path: Path,
) -> None:
    """Slurm gives each task of an array a number of its own beside the one that it prints."""
    run = RunDir(tmp_path / "run")
    (tmp_path / "submission.json").write_text('{"job_id": 7}')
    for number in (1, 2, 3):
        run.attempt(number).mkdir(parents=True)
        submitted = {"submission": str(tmp_path), "index": 0}
        (run.attempt(number) / "submitted.json").write_text(json.dumps(submitted))
    began = {"time": 0, "job": "8", "hosts": ["a", "b"]}
    (run.attempt(2) / "started.json").write_text(json.dumps(began))
    told = [row[1:4] for row in attempts(run, State.pending)]
    assert told[0] == ("never", "7_0", "") and told[2] == ("not yet", "7_0", "")
    assert told[1][1:] == ("7_0", "a,b")


def test_a_log_without_a_line_is_printed_without_a_word(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.attempt(1).mkdir(parents=True)
    run.record.write_text('{"created": 1}')
    (run.attempt(1) / "rank-0.log").touch()
    command = ["logs", str(run.path)]
    told = CliRunner().invoke(app, command)
    assert (told.stdout, told.stderr) == ("", "rank 0 has printed nothing yet\n")
    (run.attempt(1) / "rank-0.log").write_text("a word\n")
    told = CliRunner().invoke(app, command)
    assert (told.stdout, told.stderr) == ("a word\n", "")


def test_a_path_in_a_reason_makes_the_table_wide(tmp_path: Path) -> None:
    """Of a run that says where to look, and of one that followed another."""
    run, other = RunDir(tmp_path / "run"), tmp_path / "other"
    run.attempt(1).mkdir(parents=True)
    run.record.write_text('{"created": 1}')
    why = f"see {run.path}/attempts/1/rank-0.log, launcher.after={other} was not trained"
    run.finish(1, Outcome.failed, {"why": why + " and more" * 20})
    listed = CliRunner().invoke(app, ["list", str(run.path)], env={"COLUMNS": "300"}).stdout
    assert "see attempts/1/rank-0.log, launcher.after=other was not trained and" in listed
    assert listed.rstrip().endswith("…") and max(map(len, listed.splitlines())) < 160
    shown = CliRunner().invoke(app, ["show", str(run.path)]).stdout
    assert f"error    {why}{' and more' * 20}\n" in shown


def test_the_speed_of_the_last_report_and_that_of_the_whole_run_have_one_name(
    tmp_path: Path,
) -> None:
    run = RunDir(made(tmp_path, "run"))
    assert "last tok/s" in CliRunner().invoke(app, ["list", str(run.path)]).stdout
    (title,) = (c.title for c in columns([Run(run)], "train/loss") if "tok/s" in c.title)
    assert title == "mean\ntok/s"


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("optimizer.lr=1e-3", True),
        ("optimizer.lr=0.001", True),
        ("optimizer.lr=1", False),
        ("train.tokens=null", True),
        ("checkpoint.at_end=true", True),
        ("checkpoint.at_end=1", False),
        ("optimizer.name=adamw", True),
        ("optimizer.name=[ad", False),
    ],
)
def test_a_value_is_found_in_one_spelling_alone(where: str, found: bool, tmp_path: Path) -> None:
    made(tmp_path, "sought", optimizer__lr=0.001, optimizer__name="adamw", checkpoint__at_end=True)
    listed = CliRunner().invoke(app, ["list", str(tmp_path), "--where", where])
    assert (listed.exit_code, "sought" in listed.stdout) == (0, found)


def test_a_list_of_one_sweep_shows_the_runs_of_another(tmp_path: Path) -> None:
    made(tmp_path, "alone")
    for sweep in ("night", "nightly"):
        member, folder = made(tmp_path, f"of-{sweep}"), tmp_path / "sweeps" / sweep
        folder.mkdir(parents=True)
        member.rename(folder / member.name)

    def listed(*asked: str) -> set[str]:
        lines = CliRunner().invoke(app, ["list", str(tmp_path), *asked]).stdout.splitlines()
        return {line.split()[0] for line in lines[1:]}

    assert listed() == {"alone", "of-night", "of-nightly"}
    assert listed("--sweep", "night") == {"of-night"} and listed("--sweep", "nigh") == set()
