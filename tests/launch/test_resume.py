"""resume=DIR: the frozen job goes on; what would make it another run is refused by name."""

import shutil
from pathlib import Path

import pytest
import yaml
from launch.commandline import answer, run, run_dirs

from ringshard.config.compose import Command
from ringshard.errors import ConfigError
from ringshard.launch.identity import Run
from ringshard.launch.resume import _changed
from ringshard.launch.rundir import RunDir
from ringshard.launch.start import run_all


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    """A run with a value that is more than one line."""
    odd = 'output.name="a\nb\u2028c"'
    assert run(folder, "train.steps=100", odd, "tracking.experiment=mine").returncode == 0
    return folder


def _job(run_dir: Path, attempt: int) -> dict[str, dict[str, object]]:
    return dict(yaml.safe_load((run_dir / f"attempts/{attempt}/job.yaml").read_text()))


REFUSED = {
    "optimizer.lr=2e-3": "optimizer.lr=0.002 cannot change in a resumed run",
    "optimizer=muon": "optimizer.name=muon cannot change in a resumed run",
    "model=small": "model.config=",
    "data.seq_len=8": "data.seq_len=8 cannot change",
    "train.seed=5": "train.seed=5 cannot change",
    "output.name=other": "output.name=other cannot change",
    "train.steps=100": "give more to go on",
    "train.steps=50": "the run is made for 100 steps, give more",
    "train.steps=200,300": "give each key one value",
    "train.steps=null train.tokens=99": "train.tokens=99: this run is measured in steps",
    "train.stps=3": "did you mean train.steps",
    "hardware.processes_per_node=3": "must be a multiple of 3 processes",
}


@pytest.mark.rotated(3)
@pytest.mark.parametrize("change", REFUSED)
def test_what_would_be_another_run_is_refused(change: str, finished: Path) -> None:
    (run_dir,) = run_dirs(finished)
    ended = answer(finished, f"resume={run_dir}", "launcher.dry_run=false", *change.split())
    assert ended.returncode == 2 and REFUSED[change] in ended.stderr, ended.stderr
    assert ended.stderr.count("\n") == 1 and not (run_dir / "attempts" / "2").exists()


def test_a_longer_run_on_other_hardware_keeps_the_frozen_rest(finished: Path) -> None:
    """The frozen rate stands although the config files say another one by now."""
    (run_dir,) = run_dirs(finished)
    frozen = run_dir / "attempts" / "1" / "job.yaml"
    frozen.write_text(frozen.read_text().replace("lr: 0.001", "lr: 0.005"))
    back = answer(finished, f"resume={run_dir}", "train.steps=200", "optimizer.lr=0.001")
    assert back.returncode == 2 and "optimizer.lr=0.001 cannot change" in back.stderr
    change = ("train.steps=200", "hardware.processes_per_node=1", "tracking=none")
    ended = run(finished, f"resume={run_dir}", *change)
    assert ended.returncode == 0, ended.stderr
    job = _job(run_dir, 2)
    assert job["train"]["steps"] == 200 and job["parallelism"]["dp_shard"] == 1
    assert job["optimizer"]["lr"] == 0.005 and job["tracking"]["backend"] == "none"
    assert job["data"]["digest"] == _job(run_dir, 1)["data"]["digest"]
    overrides = RunDir(run_dir).overrides(2)
    assert "train.steps=200" in overrides and "train.steps=100" not in overrides


def test_what_is_named_from_another_folder_stays_in_the_runs_root(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default root and the degree that is left over belong to the run, not to today's YAML."""
    run_dir = RunDir(run_dirs(finished)[0])
    frozen, record = run_dir.job(1), run_dir.about()
    frozen.hardware.processes_per_node = frozen.parallelism.dp_shard = 4
    monkeypatch.chdir(tmp_path)
    command = Command("train", [], ["tracking=mlflow", "parallelism.dp_replicate=2"])
    job = _changed(frozen, record, run_dir.overrides(1), command)
    assert job.tracking.uri == f"sqlite:///{finished}/outputs/mlflow.db"
    assert (job.parallelism.dp_replicate, job.parallelism.dp_shard) == (2, 2)


def test_a_run_goes_on_with_the_data_it_was_frozen_with_or_not_at_all(tmp_path: Path) -> None:
    text = tmp_path / "own.txt"
    text.write_text("the first text of the run, and it is not short. " * 40)
    own = (
        "data=text_files",
        f"data.path={text}",
        "data.split=position",
        "data.validation_share=0.4",
    )
    assert run(tmp_path, *own).returncode == 0
    (run_dir,) = run_dirs(tmp_path)
    text.write_text("another text, of which the run has never read a word. " * 40)
    ended = run(tmp_path, f"resume={run_dir}", own[1], "train.steps=400")
    assert ended.returncode == 0, ended.stderr
    assert _job(run_dir, 2)["data"]["digest"] == _job(run_dir, 1)["data"]["digest"]

    shutil.rmtree(tmp_path / "outputs" / "data" / "prepared")
    ended = run(tmp_path, f"resume={run_dir}", own[1], "train.steps=500")
    assert ended.returncode == 2 and "are not what they were" in ended.stderr, ended.stderr
    assert not (run_dir / "attempts" / "3").exists()


def test_the_later_of_two_resumes_ends_as_if_all_were_well(finished: Path) -> None:
    (run_dir,) = run_dirs(finished)
    last = RunDir(run_dir).last_attempt()
    longer = f"train.steps={1000 * last}"
    with RunDir(run_dir).claimed():
        job = RunDir(run_dir).job(last)
        again = Run(job, [longer], "", None, RunDir(run_dir), after=last)
        with pytest.raises(ConfigError, match="is running: wait for its end, or stop it"):
            run_all(Command("train", [], []), [again], "standin")
        ended = answer(finished, f"resume={run_dir}", longer)
    assert ended.returncode == 2 and "the run is running" in ended.stderr
    assert RunDir(run_dir).last_attempt() == last


def test_the_second_of_two_resumes_begins_an_attempt_with_nothing_to_do(finished: Path) -> None:
    """It had looked at the run before the first one took it, and gets it when that one is done."""
    run_dir = RunDir(run_dirs(finished)[0])
    last = run_dir.last_attempt()
    longer = f"train.steps={1000 * last}"
    late = Run(run_dir.job(last), [longer], "", None, run_dir, after=last - 1)
    with pytest.raises(ConfigError, match=f"has gone on in attempt {last} meanwhile"):
        run_all(Command("train", [], []), [late], "standin")
    assert run_dir.last_attempt() == last


@pytest.mark.parametrize("name", ["run.json", "attempts/1/job.yaml", "attempts/1/overrides.json"])
@pytest.mark.parametrize("text", ["", "{", "[1, 2", "3", "a: [\t"])
def test_a_damaged_run_is_a_traceback(name: str, text: str, finished: Path, tmp_path: Path) -> None:
    (run_dir,) = run_dirs(finished)
    run = tmp_path / "run"
    shutil.copytree(run_dir, run, ignore=shutil.ignore_patterns("[2-9]"))
    (run / name).write_text(text)
    ended = answer(finished, f"resume={run}", "train.steps=9000", "--dry-run")
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"{run / name} is not") and ended.stderr.count("\n") == 1
