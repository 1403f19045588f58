"""Runs are compared from their folders alone: what differs, where they got, and a picture."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml
from report.commands import ringshard
from report.folders import CREATED, made

from ringshard.tracking.spool import Spool

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A run folder as the launcher and the ranks leave it."""
    return partial(made, tmp_path / "outputs")


def test_a_table_shows_what_differs_and_where_runs_got(make: Make, tmp_path: Path) -> None:
    """Of runs that are over before their end nothing is left: they have no checkpoint."""
    make("tiny-b", created=CREATED + 2, optimizer__lr=0.2, marker="KILLED")
    make("tiny-a", created=CREATED + 1, optimizer__lr=0.1)
    make("tiny-c", created=CREATED + 3, optimizer__lr=0.2, marker=None, steps=10)
    done = ringshard("compare", tmp_path / "outputs")
    above, title, _, *rows = [line for line in done.stdout.splitlines() if line.strip()]
    assert above.split() == ["optimizer.", "train", "val", "mean", "mean", "good-"]
    assert title.split() == ["run", "state", "step", "lr", "loss", "loss", "tok/s", "mfu", "put"]
    assert [row.split() for row in rows[:3]] == [
        ["tiny-a", "done", "20", "0.1", "1.667", "1.7", "512", "25.0%", "69%"],
        ["tiny-b", "killed", "20", "0.2", "*1", "*1.02", "512", "25.0%", "0%"],
        ["tiny-c", "interrupted", "10", "0.2", "1.667", "1.7", "512", "25.0%", "0%"],
    ]
    assert rows[-1].startswith("the runs have not trained equally long")


def test_seeds_are_not_one_group_and_other_settings_are(make: Make, tmp_path: Path) -> None:
    """Mean and deviation of the sample; what is not finite is left out of them and told."""
    for seed, wiggle in ((1, 0.0), (2, 0.1), (3, 0.2)):
        make(f"slow-{seed}", optimizer__lr=0.1, train__seed=seed, wiggle=wiggle)
    make("fast-1", optimizer__lr=0.2, train__seed=1)
    make("fast-2", optimizer__lr=0.2, train__seed=2, wiggle=float("nan"))
    done = ringshard("compare", tmp_path / "outputs")
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if " lr=" in line}
    assert rows["lr=0.1"][:8] == ["lr=0.1", "3", "1.767", "±", "0.1", "1.8", "±", "0.1"]
    told = ["1", "(1", "not", "finite)", "1.02", "(1", "not", "finite)"]
    assert rows["lr=0.2"][:10] == ["lr=0.2", "2", *told]
    nan = "20 of 20 values of train/loss are NaN or infinite, the first at step 1"
    assert f"fast-2: {nan}" in done.stdout
    best = [line.split() for line in done.stdout.splitlines() if "*1" in line]
    assert [row[0] for row in best] == ["fast-1"]


def test_the_best_of_runs_is_one_that_diverged(make: Make, tmp_path: Path) -> None:
    make("sound", optimizer__lr=0.1)
    make("worse", optimizer__lr=0.05)
    diverged = make("diverged", optimizer__lr=0.9)
    (diverged / "attempts/1/result.json").write_text('{"skipped_at_end": 3}')
    lines = ringshard("compare", tmp_path / "outputs").stdout.splitlines()
    assert [line.split()[0] for line in lines if "*" in line] == ["sound"]


@pytest.mark.parametrize("count", [2, 8])
def test_many_differing_keys_break_the_table(count: int, make: Make, tmp_path: Path) -> None:
    """40 of them: the first ones are rows, the others are named, and no line is endless."""
    for place in range(count):
        folder = make(f"tiny-{place}", created=CREATED + place) / "attempts" / "1"
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
    run = make("tiny-a")
    done = ringshard("compare", run, tmp_path / "outputs" / "runs")
    assert done.stdout.count("tiny-a") == 1
    assert "optimizer.lr" not in done.stdout


def test_a_picture_of_one_and_of_many_runs(make: Make, tmp_path: Path) -> None:
    runs = [make(f"tiny-{n}", CREATED + n, optimizer__lr=0.1 * (1 + n)) for n in range(12)]
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
    made = [make(f"tiny-{name}", created=CREATED + n) for n, name in enumerate("abcd")]
    (made[0] / "attempts/1/job.yaml").unlink()
    shutil.rmtree(made[1] / "track")
    spoil(made[2])
    done = ringshard("compare", tmp_path / "outputs")
    job = made[0] / "attempts" / "1" / "job.yaml"
    assert done.stderr == f"{made[0]} has no job that can be read ({job}): left out\n"
    rows = [line.split() for line in done.stdout.splitlines() if "tiny-" in line]
    assert rows[:3] == [
        ["tiny-b", "done", "0", "0%"],
        ["tiny-c", "done,", "incomplete", "0", "0%"],
        ["tiny-d", "done", "20", "4.902", "5", "512", "25.0%", "69%"],
    ]
    damaged = "tiny-c: 22 lines of its record are damaged (wrong checksum)"
    assert damaged in done.stdout.splitlines()
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    done = ringshard("track", "sync", tmp_path / "outputs", "--uri", uri)
    assert done.returncode == 2
    assert done.stderr == f"{made[0]} has no job that can be read ({job})\n"
    told = f"all points are in {uri}, status FINISHED"
    assert done.stdout.splitlines() == [
        f"{made[1]}: {told}",
        f"{made[2]}: {told}, 22 lines are lost",
        f"{made[3]}: {told}",
    ]


def test_a_plot_of_the_page_has_no_picture(make: Make, tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        make(f"cost-$5-and-$6-{seed}", train__seed=seed, optimizer__lr=0.1 * seed)
    done = ringshard("compare", tmp_path / "outputs", "--pngs", tmp_path / "pictures")
    assert (done.returncode, done.stderr) == (0, "")
    drawn = {file.stem for file in (tmp_path / "pictures").iterdir()}
    over = {f"train-loss-over-{axis}" for axis in ("step", "tokens", "time", "flops")}
    bars = {"speed", "mfu", "goodput", "settings-and-results"}
    assert drawn == over | bars | {"train-grad_norm-over-step", "train-lr-over-step"}
    for file in (tmp_path / "pictures").iterdir():
        assert file.read_bytes().startswith(b"\x89PNG") and f"picture: {file}\n" in done.stdout
    taken = ringshard("compare", tmp_path / "outputs", "--pngs", file)
    assert (taken.returncode, taken.stdout) == (2, "")
    assert taken.stderr == f"--pngs {file}: it is a file, give a folder\n"


NODE = "system/node-0/cpu_percent"


def test_runs_that_have_just_begun_are_refused_for_an_option_that_was_not_given(
    make: Make, tmp_path: Path
) -> None:
    """Their nodes are sampled before the first step is over."""
    run = make("young", marker=None)
    shutil.rmtree(run / "track")
    node = Spool(run, 1, writer="node-0")
    node.log(3, {NODE: 50.0})
    node.close()
    done = ringshard("compare", run)
    assert (done.returncode, done.stderr) == (0, "") and "young" in done.stdout
    picture = tmp_path / "x.png"
    refused = {
        ("--metric", "loss"): "--metric loss was never recorded: none of these runs has recorded "
        "anything, leave it out\n",
        ("--png", picture): f"--png {picture}: none of these runs has recorded anything, leave it "
        "out\n",
        ("--metric", NODE, "--x", "step", "--png", picture): f"--x step: {NODE} is noted over "
        "time, take --x time\n",
    }
    for options, sentence in refused.items():
        done = ringshard("compare", run, *options)
        assert (done.returncode, done.stderr) == (2, sentence)
    folder = tmp_path / "pictures"
    both = ("--png", picture, "--pngs", folder)
    assert ringshard("compare", run, "--metric", NODE, *both).returncode == 0
    curves = [file.name for file in folder.glob("*-over-*")]
    assert curves == ["system-node-0-cpu_percent-over-time.png"]


def test_mistakes_are_one_sentence(make: Make, tmp_path: Path) -> None:
    run = make("tiny-a")
    torn, silent = make("torn"), make("silent")
    (torn / "attempts/1/job.yaml").write_text("train: [1,")
    shutil.rmtree(silent / "track")
    bad = make("bad")
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
        "perf/data_wait, perf/mfu, perf/step_s, perf/tokens_per_s, train/flops, train/grad_norm, "
        "train/loss, train/lr, train/tokens, val/loss\n",
        ("compare", run, "--png", tmp_path / "no" / "x.png"): f"--png {tmp_path / 'no' / 'x.png'}: "
        f"there is no folder {tmp_path / 'no'}, make it first\n",
        ("compare", run, "--x", "time"): "--x time: nothing is drawn, give --html, --png or "
        "--pngs\n",
        ("compare", run, "--scaling", "--csv"): "--scaling: --csv tells of runs alone, leave out "
        "one of them\n",
        ("track", "ui", "--root", tmp_path): f"--root {tmp_path} holds no mlflow.db: give the "
        "output root of your runs\n",
        ("track", "sync", run, "--uri", "./mlruns"): "tracking.uri=./mlruns is a file store, which "
        f"MLflow no longer supports: use sqlite:///{Path('mlflow.db').absolute()} or "
        "tracking.backend=jsonl\n",
    }
    for arguments, sentence in mistakes.items():
        done = ringshard(*arguments)
        assert (done.returncode, done.stderr) == (2, sentence)
