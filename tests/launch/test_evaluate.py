"""jobs/evaluate.py, as typed: the run's own numbers, at any topology, and those of transformers."""

import json
import math
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import curve
from transformers import LlamaConfig, LlamaForCausalLM

from ringshard.config.schema.reader import read_job
from ringshard.data.dataset import Dataset
from ringshard.entry import evaluate
from ringshard.train.evaluation.session import Progress

CHECKOUT = Path(__file__).resolve().parents[2]
SEQUENCES = 16
ONE = ("hardware.processes_per_node=1", "parallelism=single")
DATA = ("data=text_files", "data.split=position", "data.validation_share=0.1", "data.seq_len=32")
SMALL = (
    "experiment=smoke",
    "output.debug=false",
    "tracking=jsonl",
    "optimizer.lr=1e-2",
    "optimizer.ema_decay=0.5",
    "data.tokenizer.kind=characters",
)
PRINTED = ["resume", "compare"]
MODEL = ("hidden_size=32", "intermediate_size=64", "num_hidden_layers=2")


def _job(name: str, folder: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(CHECKOUT / "jobs" / name), *argv]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=dict(os.environ))


def _evaluate(folder: Path, *argv: str) -> list[Path]:
    """The new evaluations' attempts, oldest first."""
    before = set(folder.glob("outputs/evaluations/*/attempts/1"))
    ended = _job("evaluate.py", folder, *argv)
    assert ended.returncode == 0, ended.stderr
    new = set(folder.glob("outputs/evaluations/*/attempts/1")) - before
    return sorted(new, key=lambda attempt: attempt.stat().st_mtime)


def _result(attempt: Path) -> dict[str, Any]:
    return dict(json.loads((attempt / "result.json").read_text()))


def test_a_long_evaluation_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    silent, told = Progress(every_s=1e9), Progress(every_s=0)
    for done in (16, 32, 48):
        silent(done, 48)
        told(done, 48)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("16 of 48 sequences, ") and second.startswith("32 of 48 sequences, ")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a text whose first half has a character, "!", that the rest has not."""
    folder = tmp_path_factory.mktemp("evaluate")
    words = ["the", "quick", "brown", "fox", "jumps", "over"]
    text = " ".join(random.Random(0).choices(words, k=4000))
    (folder / "text.txt").write_text(text.replace(" ", "!", 1))
    (folder / "other.txt").write_text(text)
    (folder / "strange.txt").write_text("über the fox " * 500)
    model = [f"model.config.{setting}" for setting in MODEL]
    ended = _job("train.py", folder, *SMALL, *DATA, "data.path=text.txt", *model)
    assert ended.returncode == 0, ended.stderr
    (run_dir,) = (folder / "outputs" / "runs").iterdir()
    shutil.copytree(
        run_dir / "checkpoints/step-00000006", run_dir / "checkpoints/step-00000009.bak"
    )
    (folder / "printed").write_text(ended.stdout)
    return run_dir


def test_the_commands_that_a_run_ends_with_can_be_pasted_into_a_shell(run: Path) -> None:
    """The one that compares is given this run twice, the one that resumes is only tried."""
    lines = (run.parents[2] / "printed").read_text().splitlines()
    commands = dict(line.split(maxsplit=1) for line in lines if line[:8].strip() in PRINTED)
    assert list(commands) == PRINTED
    commands["resume"] += " --dry-run"
    commands["compare"] = commands["compare"].replace("OTHER_RUN", str(run))
    bare = {"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"]}
    bare |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    for command in commands.values():
        subprocess.run(command, shell=True, check=True, cwd=run.parents[2], env=bare)


def test_a_dry_run_says_what_would_be_evaluated(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["evaluate.py", f"run={run}", "--dry-run"])
    monkeypatch.chdir(run.parents[2])
    before = sorted(run.parents[2].rglob("*"))
    assert evaluate() == 0
    out, err = capsys.readouterr()
    assert "step-00000006\n" in out and out.endswith("dry run: nothing was written\n") and err == ""
    assert sorted(run.parents[2].rglob("*")) == before


def test_loss_and_samples_are_the_same_at_any_topology(run: Path) -> None:
    options = (f"run={run}", f"sequences={SEQUENCES}", 'prompts=["the ", ""]', "sample_tokens=40")
    single = (*ONE, "micro_batch=3")
    ring = ("parallelism=ring", "micro_batch=5")
    ways = ((), single, ring)
    results = [_result(*_evaluate(run.parents[2], *options, *more)) for more in ways]
    for result in results:
        assert result["loss"] == pytest.approx(curve(run, "val/loss")[6], rel=1e-6)
        assert result["perplexity"] == pytest.approx(math.exp(result["loss"]))
        assert result["tokens"] == SEQUENCES * 32
        assert result["accuracy"] == curve(run, "val/accuracy")[6]
    assert results[0]["samples"] == results[1]["samples"] == results[2]["samples"]
    assert [len(sample["text"]) for sample in results[0]["samples"]] == [40, 40]


def test_temperature_0_does_not_depend_on_the_seed_and_a_checkpoint_has_its_own_loss(
    run: Path,
) -> None:
    options = (
        "checkpoint=3",
        f"sequences={SEQUENCES}",
        'prompts=["the "]',
        "sample_tokens=10",
        *ONE,
    )
    first, second = map(
        _result,
        _evaluate(run.parents[2], f"run={run}", *options, "temperature=0", "-m", "seed=1,2"),
    )
    assert first["samples"] == second["samples"]
    assert first["loss"] == pytest.approx(curve(run, "val/loss")[3], rel=1e-6)


def test_averaged_weights_have_another_loss_than_in_training(run: Path) -> None:
    (attempt,) = _evaluate(
        run.parents[2], f"run={run}", "checkpoint=best", "averaged=true", f"sequences={SEQUENCES}"
    )
    best = _best(run)
    assert _result(attempt)["loss"] == pytest.approx(curve(run, "val/ema_loss")[best], rel=1e-6)
    assert curve(run, "val/loss")[best] != curve(run, "val/ema_loss")[best]


def _best(run: Path) -> int:
    losses = curve(run, "val/loss")
    return min(losses, key=losses.__getitem__)


def test_another_text_is_read_with_the_vocabulary_of_the_run(run: Path) -> None:
    """Its validation split is that of the run; its own characters would have other ids."""
    options = ("data=text_files", "data.path=other.txt", f"sequences={SEQUENCES}", *ONE)
    (attempt,) = _evaluate(run.parents[2], f"run={run}", *options)
    assert _result(attempt)["loss"] == pytest.approx(curve(run, "val/loss")[6], rel=1e-6)
    assert read_job(attempt / "job.yaml").data.seq_len == 32


def test_a_folder_of_transformers_has_the_loss_that_transformers_computes(run: Path) -> None:
    folder = run.parents[2]
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=300, **sizes, **heads))
    model.save_pretrained(folder / "saved")
    argv = ("model=saved", *DATA, "data.path=text.txt", "data.tokenizer.kind=bytes")
    (attempt,) = _evaluate(folder, *argv, "split=train", "sequences=20", *ONE)
    data = Dataset(Path(str(read_job(attempt / "job.yaml").data.prepared)), "train", seed=1)
    tokens = torch.from_numpy(data.read(0, 20).tokens)
    with torch.no_grad():
        expected = model(input_ids=tokens, labels=tokens).loss
    assert _result(attempt)["loss"] == pytest.approx(float(expected), rel=1e-5)


# what is typed, RUN for the folder of the run -> what the sentence must say
MISTAKES = {
    "": "run is missing: give run=FOLDER of a run, or model=FOLDER with a model",
    "run=RUN model=x": "give one of them",
    "run=/nope": "run=/nope does not exist",
    "run=.": "run=. is not the folder of a run",
    "model=.": "model=. is not the folder of a model: it has no config.json",
    "-m run=RUN,/nope": "run=/nope does not exist",
    "run=RUN checkpoint=4": "checkpoint=4 is neither a step or pin nor a folder with a checkpoint: "
    "those of the run are 3, 6, best",
    "run=RUN sequences=-1": "sequences=-1 must be at least 0",
    "run=RUN micro_batch=0": "micro_batch=0 must be at least 1",
    "run=RUN temperature=0": "temperature=0.0 would have no effect: give prompts",
    "run=RUN prompts=[Z]": "prompts=[\"Z\"]: data.tokenizer.kind=characters has no id for 'Z'",
    "run=RUN prompts=[t] temperature=nan": "temperature=nan must be at least 0",
    "run=RUN split=test": "split=test must be one of train, validation",
    "run=RUN data.tokenizer.kind=bytes": "a run is evaluated through its own tokenizer",
    "run=RUN data=text_files": "data.corpora.text.path is missing",
    "run=RUN train.steps=3": "train.steps=3: there is no such key",
    "run=RUN +train.steps=3": "train.steps: there is no such key",
    "run=RUN parallelism.dp_shard=3": "must be the 2 processes",
    "run=RUN hardware=slurm_h100": "no Slurm answers here",
    "resume=RUN": "only train.py goes on with a run",
}


@pytest.mark.rotated(3)
@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    typed: str, run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run.parents[2])
    monkeypatch.setattr(sys, "argv", ["evaluate.py", *typed.replace("RUN", str(run)).split()])
    before = sorted(run.parents[2].rglob("*"))
    code = evaluate()
    out, err = capfd.readouterr()
    assert code == 2 and MISTAKES[typed] in err
    assert err.count("\n") == 1 and out == ""
    assert sorted(run.parents[2].rglob("*")) == before


def test_a_character_that_the_run_does_not_know_is_named(
    run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run.parents[2])
    argv = ["evaluate.py", f"run={run}", "data=text_files", "data.path=strange.txt"]
    monkeypatch.setattr(sys, "argv", argv)
    evaluations = run.parents[1] / "evaluations"
    before = list(evaluations.glob("*"))
    assert evaluate() == 2
    assert "data.tokenizer.kind=characters has no id for 'ü'" in capfd.readouterr().err
    assert list(evaluations.glob("*")) == before


def test_a_run_without_a_checkpoint_is_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "attempts").symlink_to(run / "attempts")
    monkeypatch.setattr(sys, "argv", ["evaluate.py", f"run={tmp_path / 'new'}"])
    assert evaluate() == 2
    assert "has no checkpoint: resume it, or wait" in capfd.readouterr().err
