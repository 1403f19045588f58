"""Searches: what they try is decided by seed and results alone, whoever stops them and when."""

import json
import os
import signal
import time
from contextlib import chdir, suppress
from pathlib import Path

import pytest
from launch.commandline import QUICK, TEXT, alive, answer, begin, run, run_dirs

from ringshard.config.compose import Command
from ringshard.config.session import Session
from ringshard.config.space import is_search, split
from ringshard.errors import ConfigError
from ringshard.launch import freeze
from ringshard.launch.identity import Run
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.search.loop import Loop
from ringshard.launch.search.plan import plan
from ringshard.launch.search.show import ranked
from ringshard.launch.search.study import JOURNAL, Study, Trial, claimed
from ringshard.launch.state import State, state
from ringshard.launch.stop import StopRequests
from ringshard.tracking.spool import Spool

RATE = "optimizer.lr=tag(log,interval(1e-4,1))"
BATCH = "train.global_batch=8,16"
SEARCH = ("search=tpe", RATE, BATCH, "search.trials=6", "parallelism=single")


class Paper:
    """A place where training is a formula, and a run is over once it is started; the rest, files
    and states, is real."""

    waits_for_runs = True

    def __init__(self) -> None:
        self.started: list[Path] = []

    def look(self) -> None:
        pass

    def state(self, run: RunDir) -> State:
        return state(run, None)

    def start(self, run: Run) -> None:
        self.started.append(run.dir.path)
        with run.dir.claimed():
            attempt = freeze.freeze(run, Command("train", [], []))
        spool, job = Spool(run.dir.path, attempt), run.job
        for step in (10, 20):
            spool.log(step, {"val/loss": job.optimizer.lr * job.train.global_batch + 1 / step})
        run.dir.finish(attempt, Outcome.done, {})

    def interrupt(self, run: RunDir, number: signal.Signals) -> None:
        raise AssertionError("there is nothing to interrupt")


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
            return study.trials()


def test_a_search_that_was_stopped_tries_other_values_or_some_twice(tmp_path: Path) -> None:
    """Also where its process died while it wrote to its journal."""
    whole = searched(tmp_path / "whole", *SEARCH, "search.startup_trials=3")
    assert len(whole) == 6 and {trial.state for trial in whole} == {"complete"}
    assert len({str(trial.point) for trial in whole}) == 6
    torn = tmp_path / "torn"
    for after in (1, 2):
        searched(torn, *SEARCH, "search.startup_trials=3", stop_after=after)
        (journal,) = torn.rglob(JOURNAL)
        with journal.open("a") as file:
            file.write('{"op_code":4,"worker_id":"')
    got = searched(torn, *SEARCH, "search.startup_trials=3")
    assert [(t.point, t.value, t.state) for t in got] == [
        (t.point, t.value, t.state) for t in whole
    ]
    more = searched(torn, *SEARCH, "search.startup_trials=3", "search.trials=8")
    assert [trial.point for trial in more[:6]] == [trial.point for trial in whole]
    assert len(more) == 8
    other = searched(tmp_path / "other", *SEARCH, "search.seed=2", "search.trials=1")
    assert other[0].point != whole[0].point


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


REFUSED = {
    "optimizer.lr=1e-3": "search has nothing to choose",
    "optimizer.lr=interval(1,0.1)": "an interval begins below its end",
    "optimizer.lr=tag(log,interval(0,1))": "a logarithm needs a begin above 0",
    "optimizer.lr=tag(logg,interval(0.1,1))": "logg is no tag",
    "optimizer.lr=tag(log,choice(1,2))": "a tag goes with interval()",
    "optimizer.lr=choice(0.1)": "has 1 values: give two or more",
    "optimizer.lr=interval(-1,1)": "optimizer.lr=-1.0",
    "optimizer.lrr=interval(0,1)": "did you mean optimizer.lr",
    "train.global_batch=interval(1,8)": "train.global_batch=1.0 must be an integer",
    "optimizer=adamw,adam": "there is no such option",
    "hardware.nodes=1,2": "does not change a run's result",
    "search.trials=0 optimizer.lr=1,2": "search.trials=0",
    "tracking=none optimizer.lr=1,2": "tracking=none records no result",
    "search=random search.startup_trials=3 optimizer.lr=1,2": "search=tpe reads it",
    "search.pruner=none search.pruner_step=3 optimizer.lr=1,2": "search.pruner=median reads it",
    "launcher.retry=none optimizer.lr=1,2": "a search tries other values",
    "model=custom,tiny": "model.type is missing",
    "search=none search.trials=3": "search=tpe or search=random reads it",
    "search=none search.sampler=tpe -m optimizer.lr=1,2": "name it as search=tpe",
    "search=none optimizer.lr=interval(0,1)": "let search=tpe choose from it",
}


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


def test_a_missing_optuna_is_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    ended = answer(tmp_path, *SEARCH)
    assert ended.returncode == 2 and "pip install 'ringshard[search]'" in ended.stderr
    assert ended.stderr.count("\n") == 1 and not (tmp_path / "outputs").exists()


def test_ranges_are_read_otherwise_than_hydra_reads_them() -> None:
    words = ["a=range(8,1,-3)", "+b.c=choice(x,[1,2])", "schedule=glob(c*)", "d=int(interval(1,9))"]
    session = Session(Command("train", [], []))
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
    assert "6 trials by tpe" in ended.stdout and "torch.distributed.run" in ended.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_the_worst_trial_or_one_without_a_result_is_shown_first() -> None:
    trials = [Trial(n, {}, value, "", {}) for n, value in enumerate((2.0, None, 1.0, 3.0))]
    assert [trial.number for trial in ranked(trials, minimize=True)] == [2, 0, 3, 1]
    assert [trial.number for trial in ranked(trials, minimize=False)] == [3, 0, 2, 1]


RATES = ("search=random", "optimizer.lr=0.01,0.02,0.04,0.9", "launcher.max_parallel=2")
REAL = (*RATES, "search.seed=6", "parallelism=single", "search.trials=6", "search.pruner_trials=1")


def at_work(folder: Path, count: int) -> dict[Path, int]:
    """The processes of runs that have recorded something, once there are so many."""
    until = time.monotonic() + 60
    while True:
        spools = [file.parents[1] for file in (folder / "outputs").rglob("spool-*")]
        runs = [run for run in spools if not (run / "DONE").exists()]
        seen = {run: max(run.glob("attempts/*/seen-0.json"), key=os.path.getmtime) for run in runs}
        pids = {run: int(json.loads(file.read_text())["pid"]) for run, file in seen.items()}
        alive_ones = {run: pid for run, pid in pids.items() if alive(pid)}
        if len(alive_ones) >= count:
            return alive_ones
        assert time.monotonic() < until, f"no {count} runs at work"
        time.sleep(0.05)


def test_a_killed_or_interrupted_search_doubles_its_runs_or_forgets_them(tmp_path: Path) -> None:
    curve = "+hardware.env.STANDIN='curve:go'"
    killed = begin(tmp_path, *REAL, curve)
    before = at_work(tmp_path, 2)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    assert all(map(alive, before.values())), "the runs ended with their search"
    asked = begin(tmp_path, *REAL, curve)
    assert asked.stdout
    lines = [asked.stdout.readline() for _ in range(3)]
    assert "[1/6] optimizer.lr=" in lines[1] and "[2/6] optimizer.lr=" in lines[2], lines
    os.killpg(asked.pid, signal.SIGINT)
    out, err = asked.communicate(timeout=60)
    assert asked.returncode == 130 and "the same command goes on" in out, out + err
    assert not any(map(alive, before.values())), "the runs outlive a search that was stopped"
    assert {len(list((path / "attempts").iterdir())) for path in before} == {1}
    for rate in (0.01, 0.02, 0.04):
        (tmp_path / f"go-{rate}").touch()
    ended = run(tmp_path, *REAL, curve)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "6 trials: " in ended.stdout and "train    " in ended.stdout
    assert {len(list((path / "attempts").iterdir())) for path in before} == {2}
    best = next(line for line in ended.stdout.splitlines() if line.startswith("best"))
    assert best.endswith("val/loss=0.01"), best
    assert "optimizer.lr=0.01" in ended.stdout.partition("train    ")[2].splitlines()[0]
    assert len(run_dirs(tmp_path)) == 4


def test_a_run_that_is_worse_than_the_others_trains_to_its_end(tmp_path: Path) -> None:
    rates = ("search=random", "optimizer.lr=0.01,0.9", "parallelism=single", "search.trials=4")
    more = ("search.seed=4", "search.pruner_trials=1", "+hardware.env.STANDIN='curve:go'")
    (tmp_path / "go-0.01").touch()
    ended = run(tmp_path, *rates, *more)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    worse = next(path for path in run_dirs(tmp_path) if not (path / "DONE").exists())
    told = json.loads((worse / "attempts/1/exit.json").read_text())
    assert told["outcome"] == "killed" and "pruned: val/loss=2" in told["why"], told
    assert state(RunDir(worse), None) is State.pruned
    assert "is worse than the median of the other trials" in ended.stdout
    assert not list(worse.glob("attempts/2"))  # tried once more, it is known
