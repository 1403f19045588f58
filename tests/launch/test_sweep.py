"""Members of a sweep: identity, order, what a rerun does, dry run."""

import json
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from launch.commandline import answer, begin, interrupt, run, run_dirs, seen
from typer import Exit

from ringshard import runs
from ringshard.config.schema.job import Job
from ringshard.launch import show
from ringshard.launch.identity import Run
from ringshard.launch.rundir import RunDir


def test_a_dry_run_shows_every_member_and_writes_nothing(tmp_path: Path) -> None:
    ended = answer(tmp_path, "-m", "optimizer.lr=1e-3,3e-4", "--dry-run")
    assert ended.returncode == 0 and ended.stderr.count("\n") == ended.stderr.count("few seconds")
    assert "[1/2] tiny" in ended.stdout and "[2/2] tiny" in ended.stdout
    assert "optimizer.lr=0.0003" in ended.stdout and "torch.distributed.run" in ended.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_a_job_for_slurm_is_written_or_run_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    slurm = ("hardware=slurm_h100", "train.micro_batch=2")
    shown = answer(tmp_path, *slurm, "--dry-run")
    assert shown.returncode == 0 and "slurm, 1 × 8 processes, cuda" in shown.stdout
    assert "#SBATCH --nodes=1" in shown.stdout and "#SBATCH --gpus-per-node=8" in shown.stdout
    ended = answer(tmp_path, *slurm)
    assert ended.returncode == 2 and "no Slurm answers here" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_a_rerun_fills_in_what_is_missing(tmp_path: Path) -> None:
    """A member fails in its first attempt; the rerun, with one more member, does the rest."""
    sweep = ("-m", "parallelism=single", "sweep.name=night")
    first = run(tmp_path, *sweep, "train.seed=1", "+hardware.env.STANDIN='raise:0'")
    assert first.returncode == 1
    second = run(tmp_path, *sweep, "train.seed=2,1")
    assert second.returncode == 0, second.stderr
    dirs = run_dirs(tmp_path)
    assert len(dirs) == 2 and len({path.parent for path in dirs}) == 1
    attempts = {path: len(list((path / "attempts").iterdir())) for path in dirs}
    assert sorted(attempts.values()) == [1, 2]
    assert all((path / "DONE").exists() and not (path / "FAILED").exists() for path in dirs)
    shown = answer(tmp_path, *sweep, "train.seed=1,2,3", "--dry-run")
    assert shown.stdout.count("  skipped  done\n") == 2 and shown.stdout.count("  command  ") == 1
    third = answer(tmp_path, *sweep, "train.seed=1,2")
    assert third.returncode == 0 and third.stdout.count("done: skipped") == 2
    assert sorted(listed(dirs[0].parent)) == [("done", 1), ("done", 2)]


def listed(sweep: Path) -> list[tuple[str, int]]:
    """State and attempts of a sweep's members as its manifest has them."""
    members = json.loads((sweep / "manifest.json").read_text())["members"]
    return [(member["state"], member["attempts"]) for member in members.values()]


def test_a_member_that_another_command_runs_is_skipped(tmp_path: Path) -> None:
    sweep = ("sweep.name=night", "parallelism=single")
    other = begin(tmp_path, *sweep, "+hardware.env.STANDIN=wait")
    seen(tmp_path, 0)
    second = answer(tmp_path, *sweep)
    assert second.returncode == 0 and "running: skipped" in second.stdout
    interrupt(other)
    other.communicate(timeout=60)
    assert other.returncode == 130


def test_a_failed_member_stops_the_sweep_if_asked_to(tmp_path: Path) -> None:
    failing = ("parallelism=single", "+hardware.env.STANDIN='raise:0'", "sweep.name=night")
    ended = run(tmp_path, "-m", "train.seed=1,2", *failing, "launcher.on_failure=stop")
    assert ended.returncode == 1
    (only,) = run_dirs(tmp_path)
    assert listed(only.parent) == [("failed", 1), ("new", 0)]
    assert run(tmp_path, "-m", "train.seed=1", *failing).returncode == 1
    assert listed(only.parent) == [("failed", 2)]  # nobody asks for the other one any more


@pytest.mark.parametrize("limit", [1, 2])
def test_a_sweep_that_is_cancelled_begins_its_next_member(limit: int, tmp_path: Path) -> None:
    given = ("parallelism=single", f"launcher.max_parallel={limit}", "sweep.name=night")
    process = begin(tmp_path, "-m", "train.seed=1,2,3", *given, "+hardware.env.STANDIN=wait")
    until = time.monotonic() + 60
    while len(list((tmp_path / "outputs").rglob("seen-0.json"))) < limit:
        assert time.monotonic() < until, "the members do not begin"
        time.sleep(0.05)
    with suppress(Exit):
        runs.cancel([tmp_path / "outputs/sweeps/night"])
    process.communicate(timeout=60)
    assert process.returncode > 0 and len(run_dirs(tmp_path)) == limit
    assert sorted(listed(tmp_path / "outputs/sweeps/night")) == sorted(
        [("killed", 1)] * limit + [("new", 0)] * (3 - limit)
    )


def test_members_that_run_together_wait_for_each_other_or_outlive_ctrl_c(tmp_path: Path) -> None:
    both = ("-m", "train.seed=1,2", "parallelism=single", "launcher.max_parallel=2")
    process = begin(tmp_path, *both, "+hardware.env.STANDIN=wait")
    until = time.monotonic() + 60
    while len(list((tmp_path / "outputs").rglob("seen-0.json"))) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    interrupt(process)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert all((run / "KILLED").exists() for run in run_dirs(tmp_path)) and "killed" in out
    again = run(tmp_path, *both, "launcher.retry=failed")
    assert again.returncode == 0 and again.stdout.count("killed: skipped") == 2


def test_a_named_run_is_the_same_run_again(tmp_path: Path) -> None:
    for _ in range(2):
        assert run(tmp_path, "sweep.name=night", "parallelism=single").returncode == 0
    (run_dir,) = run_dirs(tmp_path)
    record = json.loads((run_dir / "run.json").read_text())
    assert run_dir.parent.name == "night" and record["sweep"] == "night"
    assert run_dir.name == f"tiny-{record['signature']}"
    assert [path.name for path in (run_dir / "attempts").iterdir()] == ["1"]


def test_members_that_are_the_same_run_are_refused(tmp_path: Path) -> None:
    ended = answer(tmp_path, "-m", "hardware.threads_per_process=1,2")
    assert ended.returncode == 2 and "one and the same run" in ended.stderr
    assert not (tmp_path / "outputs").exists()


def test_bad_data_is_refused_before_a_run_directory_exists(tmp_path: Path) -> None:
    ended = run(tmp_path, "data.path=nowhere.txt")
    assert ended.returncode == 2 and "nowhere.txt" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("run.json"))


def test_a_model_that_cannot_be_built_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    mistakes = {"model=custom model.type=lama": "did you mean"}
    mistakes |= {"model=gpt2_char data.seq_len=128": "longer than the 64 positions"}
    for typed, sentence in mistakes.items():
        ended = answer(tmp_path, *typed.split())
        assert ended.returncode == 2 and sentence in ended.stderr, ended.stderr
        assert not (tmp_path / "outputs").exists()


def test_a_vocabulary_smaller_than_the_datas_is_refused(tmp_path: Path) -> None:
    ended = answer(tmp_path, "+model.config.vocab_size=100")
    assert (
        ended.returncode == 2 and "model.config.vocab_size=100 is less than the 257" in ended.stderr
    )
    assert not list(tmp_path.rglob("run.json"))


@pytest.mark.parametrize("steps", [(100, 100), (100, 40)])
def test_members_of_different_lengths_are_shown_as_if_they_compared(
    steps: tuple[int, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = []
    for seed, step in enumerate(steps, start=1):
        run_dir = RunDir(tmp_path / f"run-{seed}")
        run_dir.attempt(1).mkdir(parents=True)
        result = {"step": step, "train_loss": 2.5, "val_loss": 2.6}
        (run_dir.attempt(1) / "result.json").write_text(json.dumps(result))
        rows.append((Run(Job(), [f"train.seed={seed}"], "", None, run_dir), "done", 1))
    show.table(rows)
    shown = capsys.readouterr().out
    assert ("not trained equally long" in shown) == ("steps" in shown) == (steps[0] != steps[1])
    assert steps[0] == steps[1] or "40" in shown
