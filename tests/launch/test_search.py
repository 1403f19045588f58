"""Searches: what they try is decided by seed and results alone, whoever stops them and when."""

import json
import os
import re
import signal
import time
from contextlib import chdir, suppress
from pathlib import Path

import pytest
from launch.commandline import QUICK, TEXT, alive, answer, begin, run, run_dirs
from launch.paper import BATCH, Paper, planned_in

from ringshard.config.compose import Command
from ringshard.config.session import Session
from ringshard.config.space import is_search, split
from ringshard.errors import ConfigError
from ringshard.launch.identity import Run
from ringshard.launch.rundir import RunDir
from ringshard.launch.search.loop import Loop
from ringshard.launch.search.plan import plan
from ringshard.launch.search.show import ranked
from ringshard.launch.search.study import JOURNAL, Study, Trial, claimed
from ringshard.launch.state import State, state
from ringshard.launch.stop import StopRequests

RATE = "optimizer.lr=tag(log,interval(1e-4,1))"
SEARCH = ("search=tpe", RATE, BATCH, "search.trials=4", "parallelism=single")


def searched(folder: Path, *argv: str, stop_after: int | None = None) -> list[Trial]:
    """All trials after a command that stands in `folder`; stopped where it has begun some."""
    folder.mkdir(exist_ok=True)
    (folder / "text.txt").write_text(TEXT)
    with chdir(folder):
        planned = plan(Command("train", [], [*QUICK, *argv]))
        with claimed(planned.folder):
            planned.remember()
            study = Study(planned.folder, planned.space, planned.policy.search)
            place, stop = Paper(), StopRequests()
            loop = Loop(planned, study, place)
            begin_one = loop._begin

            def count(trial: Trial) -> None:
                begin_one(trial)
                if len(place.started) == stop_after:
                    raise KeyboardInterrupt

            loop._begin = count  # type: ignore[method-assign]
            with suppress(KeyboardInterrupt):
                loop.run(stop)
            assert len(set(place.started)) == len(place.started), "a run was started twice"
            done = [trial for trial in study.trials() if trial.state == "complete"]
            assert {study.reported(trial) for trial in done} == {20}, "a quick run is not compared"
            return study.trials()


def test_a_search_that_was_stopped_tries_other_values_or_some_twice(tmp_path: Path) -> None:
    """Also where its process died while it wrote to its journal."""
    tpe = (*SEARCH, "search.startup_trials=2")
    whole = searched(tmp_path / "whole", *tpe)
    assert len(whole) == 4 and {trial.state for trial in whole} == {"complete"}
    assert len({str(trial.point) for trial in whole}) == 4
    torn = tmp_path / "torn"
    searched(torn, *tpe, stop_after=3)
    (journal,) = torn.rglob(JOURNAL)
    with journal.open("a") as file:
        file.write('{"op_code":4,"worker_id":"')
    got = searched(torn, *tpe, "search.trials=5")
    assert [(t.point, t.value) for t in got[:4]] == [(t.point, t.value) for t in whole]
    assert len(got) == 5


def test_a_point_that_was_tried_trains_again(tmp_path: Path) -> None:
    got = searched(tmp_path, "search=random", BATCH, "parallelism=single", "search.trials=5")
    assert len(got) == 5 and len({trial.facts["run"] for trial in got}) == 2
    assert {trial.state for trial in got} == {"complete"}


def test_a_combination_that_is_not_valid_ends_the_search(tmp_path: Path) -> None:
    """Each value is valid beside the first of the other key; 3 with 8 is not."""
    both = ("train.global_batch=6,8", "train.micro_batch=1,2,3", "parallelism=single")
    got = searched(tmp_path, "search=random", *both, "search.trials=8")
    failed = [trial for trial in got if trial.state == "fail"]
    assert failed and all("micro_batch" in trial.facts["why"] for trial in failed)
    assert {(t.point["train.global_batch"], t.point["train.micro_batch"]) for t in failed} == {
        ("8", "3")
    }


def test_where_no_job_is_taken_all_trials_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(place: Paper, run: Run) -> None:
        raise ConfigError("sbatch refuses the job")

    argv = ("search=random", BATCH, "parallelism=single", "search.trials=1")
    with monkeypatch.context() as patched, pytest.raises(ConfigError, match="sbatch refuses"):
        patched.setattr(Paper, "start", refuse)
        searched(tmp_path, *argv)
    (trial,) = searched(tmp_path, *argv)
    assert (trial.number, trial.state) == (0, "complete")


SPELLED = {
    "optimizer.lr=1e-3": "search has nothing to choose",
    "optimizer.lr=interval(1,0.1)": "an interval begins below its end",
    "optimizer.lr=tag(log,interval(0,1))": "a logarithm needs a begin above 0",
    "optimizer.lr=tag(logg,interval(0.1,1))": "logg is no tag",
    "optimizer.lr=tag(log,choice(1,2))": "a tag goes with interval()",
    "optimizer.lr=choice(0.1)": "has 1 values: give two or more",
    "optimizer.lr=1,2 optimizer.lr=interval(0,1)": "a key has one range",
    "optimizer.lr=interval(1,": "cannot be parsed",
}
REFUSED = {
    "optimizer.lr=interval(-1,1)": "optimizer.lr=-1.0",
    "optimizer.lrr=interval(0,1)": "did you mean optimizer.lr",
    "train.global_batch=interval(1,8)": "train.global_batch=1.0 must be an integer",
    "optimizer=adamw,adam": "there is no such option",
    "hardware.nodes=1,2": "does not change a run's result",
    "tracking=none optimizer.lr=1,2": "tracking=none records no result",
    "search=random search.startup_trials=3 optimizer.lr=1,2": "search=tpe reads it",
    "search.pruner=none search.pruner_step=3 optimizer.lr=1,2": "search.pruner=median reads it",
    "launcher.wait=true optimizer.lr=1,2": "a search always waits",
    "hardware=slurm_cpu launcher.wait=true optimizer.lr=1,2": "a search always waits",
    "launcher.retry=none optimizer.lr=1,2": "a search tries other values",
    "search=none search.trials=3": "search=tpe or search=random reads it",
    "search=none search.sampler=tpe -m optimizer.lr=1,2": "name it as search=tpe",
    "search=none optimizer.lr=interval(0,1)": "let search=tpe choose from it",
}


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(Command("train", [], []))


@pytest.mark.parametrize("argv", SPELLED)
def test_a_range_without_a_meaning_is_searched(argv: str, session: Session) -> None:
    with pytest.raises(ConfigError, match=re.escape(SPELLED[argv])):
        split(session.parse(argv.split()))


@pytest.mark.parametrize("argv", REFUSED)
def test_a_space_that_is_not_valid_is_searched(argv: str, tmp_path: Path) -> None:
    ended = answer(tmp_path, "search=tpe", "parallelism=single", *argv.split())
    assert ended.returncode == 2 and REFUSED[argv] in ended.stderr, ended.stderr
    assert ended.stderr.count("\n") == 1 and not (tmp_path / "outputs").exists()


def test_a_search_goes_on_under_a_name_that_is_another_ones(tmp_path: Path) -> None:
    named = ("parallelism=single", "sweep.name=night", "search=random", "search.trials=1")
    searched(tmp_path, *named, BATCH)
    with pytest.raises(ConfigError, match=r"was begun with space .*8,16, now .*8,32: take another"):
        searched(tmp_path, *named, "train.global_batch=8,32")
    with chdir(tmp_path), claimed(tmp_path / "outputs/sweeps/night"):
        again = answer(tmp_path, *named, BATCH)
    assert again.returncode == 2 and "is being searched" in again.stderr


def test_a_search_goes_on_with_another_model_under_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that the words name were edited in between."""
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "conf/model/mine.yaml"
    model.parent.mkdir(parents=True)
    mine = ("--config-dir", str(model.parents[1])), ("model=mine", "search=random", BATCH)

    def begin_with(layers: int, *more: str) -> None:
        fields = f"{{num_hidden_layers: {layers}}}"
        model.write_text(f"defaults: [tiny, _self_]\nconfig: {fields}\n")
        planned_in(tmp_path, "sweep.name=night", *mine[1], *more, options=mine[0])

    begin_with(2)
    begin_with(2, "search.trials=30")
    with pytest.raises(ConfigError, match=r"configuration hash \w+, now \w+: take another sweep"):
        begin_with(3)


def test_a_missing_optuna_is_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    ended = answer(tmp_path, *SEARCH)
    assert ended.returncode == 2 and "pip install 'ringshard[search]'" in ended.stderr
    assert ended.stderr.count("\n") == 1 and not (tmp_path / "outputs").exists()


def test_ranges_are_read_otherwise_than_hydra_reads_them(session: Session) -> None:
    words = ["a=range(8,1,-3)", "+b.c=choice(x,[1,2])", "schedule=glob(c*)", "d=int(interval(1,9))"]
    space = split(session.parse([*words, "train.steps=3"]))
    assert is_search(["search=tpe"]) and not is_search(["search=tpe", "search=none", "searcher=1"])
    point = {"a": 1, "+b.c": "[1,2]", "schedule": "cosine", "d": 4}
    with pytest.raises(ConfigError, match="has 1 values"):
        split(session.parse(["schedule=glob(ws*)"]))
    assert space.fixed == ["train.steps=3"]
    assert space.overrides(point) == ["a=5", "+b.c=[1,2]", "schedule=cosine", "d=4"]


def test_the_dry_run_of_a_search_writes_or_says_nothing_of_its_trials(tmp_path: Path) -> None:
    ended = answer(tmp_path, *SEARCH, "--dry-run")
    assert ended.returncode == 0, ended.stderr
    assert "numbers from 0.0001 to 1.0, on a logarithmic scale" in ended.stdout
    assert "4 trials by tpe" in ended.stdout and "torch.distributed.run" in ended.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_the_policy_for_failures_is_refused_to_a_search_on_the_cluster(tmp_path: Path) -> None:
    ended = answer(
        tmp_path, *SEARCH, "hardware=slurm_cpu", "hardware.nodes=1", "launcher.on_failure=stop"
    )
    assert ended.returncode == 2 and "no Slurm answers here" in ended.stderr, ended.stderr


def test_the_worst_trial_or_one_without_a_result_is_shown_first() -> None:
    trials = [Trial(n, {}, value, "", {}) for n, value in enumerate((2.0, None, 1.0, 3.0))]
    assert [trial.number for trial in ranked(trials, minimize=True)] == [2, 0, 3, 1]
    assert [trial.number for trial in ranked(trials, minimize=False)] == [3, 0, 2, 1]


REAL = (
    *("search=random", "search.seed=4", "optimizer.lr=0.01,0.9", "parallelism=single"),
    *("search.trials=3", "search.pruner_trials=1", "+hardware.env.STANDIN='curve:go'"),
)
"""The seed tries 0.01 once, which waits half-way for a file, and then 0.9, which is worse."""


def at_work(folder: Path) -> int:
    """The process of the run that has recorded something and goes on."""
    until = time.monotonic() + 60
    while not list((folder / "outputs").rglob("spool-*-rank0.jsonl")):
        assert time.monotonic() < until, "no run is at work"
        time.sleep(0.05)
    (seen,) = (folder / "outputs").rglob("seen-0.json")
    return int(json.loads(seen.read_text())["pid"])


def test_a_search_that_was_killed_doubles_its_runs_or_a_bad_one_trains_on(tmp_path: Path) -> None:
    killed = begin(tmp_path, *REAL)
    rank = at_work(tmp_path)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    assert alive(rank), "the run ended with its search"

    asked = begin(tmp_path, *REAL)
    assert asked.stdout
    lines = [asked.stdout.readline() for _ in range(2)]
    assert lines[1] == "[1/3] optimizer.lr=0.01\n", lines
    os.killpg(asked.pid, signal.SIGINT)
    out, err = asked.communicate(timeout=60)
    assert asked.returncode == 130 and "the same command goes on" in out, out + err
    assert not alive(rank), "the run outlives a search that was stopped"
    (first,) = run_dirs(tmp_path)
    assert [path.name for path in (first / "attempts").iterdir()] == ["1"]

    (tmp_path / "go-0.01").touch()
    ended = run(tmp_path, *REAL)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3 trials: 1 done, 2 pruned" in ended.stdout, ended.stdout
    assert f"{first.name}  val/loss=0.01\n" in ended.stdout
    assert "optimizer.lr=0.01" in ended.stdout.partition("train    ")[2].splitlines()[0]
    assert len(list((first / "attempts").iterdir())) == 2
    (worse,) = set(run_dirs(tmp_path)) - {first}
    told = json.loads((worse / "attempts/1/exit.json").read_text())
    assert told["outcome"] == "killed" and told["why"].startswith("pruned: val/loss=2"), told
    assert state(RunDir(worse), None) is State.pruned and not list(worse.glob("attempts/2"))
