"""Runs are compared from their folders alone: what differs, where they got, and a picture."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ringshard.config.schema.job import Job
from ringshard.config.schema.reader import plain
from ringshard.tracking.spool import Spool

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A run folder as the launcher and the ranks leave it."""

    def made(name: str, created: float, lr: float, marker: str | None = "DONE") -> Path:
        path = tmp_path / "outputs" / "runs" / name
        folder = path / "attempts" / "1"
        folder.mkdir(parents=True)
        about = {"name": "tiny", "created": created, "signature": "0" * 12, "sweep": None}
        (path / "run.json").write_text(json.dumps(about))
        job = Job()
        job.optimizer.lr, job.output.root = lr, str(tmp_path / name)
        job.model.config = {"hidden_size": 64}
        (folder / "job.yaml").write_text(yaml.safe_dump(plain(job)))
        (folder / "overrides.json").write_text("[]")
        (folder / "result.json").write_text(json.dumps({"bigram_entropy": 2.1}))
        train(path, lr)
        if marker:
            (path / marker).touch()
        return path

    return made


def train(path: Path, lr: float) -> None:
    spool = Spool(path, 1)
    for step in range(1, 21):
        spool.log(step, {"train/loss": 5 / (1 + lr * step), "perf/tokens_per_s": 12345.6})
        if step % 10 == 0:
            spool.log(step, {"val/loss": 5.1 / (1 + lr * step)})
    spool.close()


def ringshard(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringshard.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_table_shows_what_differs_and_where_runs_got(make: Make, tmp_path: Path) -> None:
    make("tiny-b", created=2.0, lr=0.2, marker="KILLED")
    make("tiny-a", created=1.0, lr=0.1)
    make("tiny-c", created=3.0, lr=0.2, marker=None)
    done = ringshard("compare", tmp_path / "outputs")
    above, title, _, *rows = [line for line in done.stdout.splitlines() if line.strip()]
    assert above.split() == ["optimizer.", "train", "val"]
    assert title.split() == ["run", "state", "step", "lr", "loss", "loss", "tok/s"]
    assert [row.split() for row in rows] == [
        ["tiny-a", "done", "20", "0.1", "1.667", "1.7", "12,346"],
        ["tiny-b", "killed", "20", "0.2", "1", "1.02", "12,346"],
        ["tiny-c", "interrupted", "20", "0.2", "1", "1.02", "12,346"],
    ]


@pytest.mark.parametrize("count", [2, 8])
def test_many_differing_keys_break_the_table(count: int, make: Make, tmp_path: Path) -> None:
    """40 of them: the first ones are rows, the others are named, and no line is endless."""
    for place in range(count):
        folder = make(f"tiny-{place}", created=place, lr=0.1) / "attempts" / "1"
        job = yaml.safe_load((folder / "job.yaml").read_text())
        job["model"]["config"] = {f"field_{key:02}": 1000 * place + key for key in range(40)}
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
    lines = ringshard("compare", tmp_path / "outputs").stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith(" model.config.field_")]
    values = [f"{1000 * place}" + "," * (count == 8 and place < 7) for place in range(count)]
    assert rows[0] == ["model.config.field_00", *values] and len(rows) == 24
    (rest,) = (line for line in lines if "more keys differ" in line)
    assert rest.startswith("16 more keys differ: model.config.field_24, ")
    assert max(len(line) for line in lines if line != rest) < 120


def test_run_folders_and_their_root_name_a_run_once(make: Make, tmp_path: Path) -> None:
    run = make("tiny-a", created=1.0, lr=0.1)
    done = ringshard("compare", run, tmp_path / "outputs" / "runs")
    assert done.stdout.count("tiny-a") == 1
    assert "optimizer.lr" not in done.stdout


def test_a_picture_of_one_and_of_many_runs(make: Make, tmp_path: Path) -> None:
    runs = [make(f"tiny-{place}", created=place, lr=0.1 * (1 + place)) for place in range(12)]
    for chosen in (runs[:1], runs):
        done = ringshard("compare", *chosen, "--png", tmp_path / "loss.png")
        assert (done.returncode, done.stderr) == (0, "")
        assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def spoil(path: Path) -> None:
    """Damages every line of a run's spool."""
    spool = path / "track" / "spool-1.0-rank0.jsonl"
    spool.write_bytes(spool.read_bytes().replace(b'"step":', b'"stop":'))


def test_torn_silent_and_damaged_runs_are_told_beside_the_others(
    make: Make, tmp_path: Path
) -> None:
    made = [make(f"tiny-{name}", created=place, lr=0.1) for place, name in enumerate("abcd")]
    (made[0] / "attempts/1/job.yaml").unlink()
    shutil.rmtree(made[1] / "track")
    spoil(made[2])
    done = ringshard("compare", tmp_path / "outputs")
    job = made[0] / "attempts" / "1" / "job.yaml"
    assert done.stderr == f"{made[0]} has no job that can be read ({job}): left out\n"
    rows = [line.split() for line in done.stdout.splitlines() if "tiny-" in line]
    assert rows[:3] == [
        ["tiny-b", "done", "0"],
        ["tiny-c", "done", "0"],
        ["tiny-d", "done", "20", "1.667", "1.7", "12,346"],
    ]
    assert "tiny-c: 22 lines of its record are lost" in done.stdout
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    done = ringshard("track", "sync", tmp_path / "outputs", "--uri", uri)
    assert done.returncode == 2
    assert done.stderr == f"{made[0]} has no job that can be read ({job})\n"
    told = f"all points are in {uri}, status KILLED"  # done, and no exit.json: torn as well
    assert done.stdout.splitlines() == [
        f"{made[1]}: {told}",
        f"{made[2]}: {told}, 22 lines are lost",
        f"{made[3]}: {told}",
    ]


def test_mistakes_are_one_sentence(make: Make, tmp_path: Path) -> None:
    run = make("tiny-a", created=1.0, lr=0.1)
    torn, silent = make("torn", created=1.0, lr=0.1), make("silent", created=1.0, lr=0.1)
    (torn / "attempts/1/job.yaml").write_text("train: [1,")
    shutil.rmtree(silent / "track")
    bad = make("bad", created=1.0, lr=0.1)
    (bad / "run.json").write_text("{")
    mistakes = {
        ("compare", bad): f"{bad / 'run.json'} is damaged: move the run elsewhere\n",
        ("compare", torn): f"{torn} has no job that can be read ({torn / 'attempts/1/job.yaml'}): "
        "left out\nno run is left to compare: give others\n",
        ("compare", silent, "--png", tmp_path / "x.png"): f"--png {tmp_path / 'x.png'}: none of "
        "these runs has recorded anything, leave it out\n",
        (
            "compare",
            tmp_path / "nowhere",
        ): f"{tmp_path / 'nowhere'} holds no run: give run folders, "
        "a sweep's folder or an output root\n",
        ("compare", run, "--metric", "loss"): "--metric loss was never recorded: take one of "
        "perf/tokens_per_s, train/loss, val/loss\n",
        ("compare", run, "--png", tmp_path / "no" / "x.png"): f"--png {tmp_path / 'no' / 'x.png'}: "
        f"there is no folder {tmp_path / 'no'}, make it first\n",
        ("track", "ui", "--root", tmp_path): f"--root {tmp_path} holds no mlflow.db: give the "
        "output root of your runs\n",
        ("track", "sync", run, "--uri", "./mlruns"): "tracking.uri=./mlruns is a file store, which "
        f"MLflow no longer supports: use sqlite:///{Path('mlflow.db').absolute()} or "
        "tracking.backend=jsonl\n",
    }
    for arguments, sentence in mistakes.items():
        done = ringshard(*arguments)
        assert (done.returncode, done.stderr) == (2, sentence)
