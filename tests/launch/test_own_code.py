"""A folder of a user: options, a model and an optimizer of their own, trained for real."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from runs import curve
from tracking.conftest import RunFolder
from tracking.shipped import history, remote

from ringshard.entry import train

CHECKOUT = Path(__file__).resolve().parents[2]
MODULE = """
import torch
from ringshard.registry import register


@register("optimizer", "plain")
def plain(groups, lr, momentum):
    return torch.optim.SGD(groups, lr=lr, momentum=momentum)


@register("model", "mine")
def mine(config, vocab_size):
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("llama", vocab_size=vocab_size, **config)
    return AutoModelForCausalLM.from_config(config)
"""
OPTIMIZER = "name: plain\nlr: 0.05\nargs:\n  momentum: 0.9\n"
MODEL = """
type: mine
config: {hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 2}
"""


def _train(folder: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(CHECKOUT / "jobs" / "train.py"), *argv]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=dict(os.environ))


def test_an_outside_folder_trains_its_own_model_and_optimizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "mine.py": MODULE,
        "conf/optimizer/mine.yaml": OPTIMIZER,
        "conf/model/mine.yaml": MODEL,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 500)
    own = ("--config-dir=conf", "optimizer=mine", "model=mine", "user.modules=[mine]")
    data = ("data=text_files", "data.path=text.txt", "data.split=position", "data.seq_len=32")
    small = ("experiment=smoke", "parallelism=single", "tracking=jsonl")
    ended = _train(tmp_path, *own, *data, *small)
    assert ended.returncode == 0, ended.stderr
    (run_dir,) = (tmp_path / "outputs" / "debug" / "runs").iterdir()
    result = json.loads((run_dir / "attempts/1/result.json").read_text())
    assert result["outcome"] == "finished" and result["step"] == 6
    sentences = {"optimizer.name=plane": "optimizer.name=plane is not a registered optimizer: did"}
    sentences |= {"+train.hooks.beep={}": "train.hooks=beep is not a registered hook: add its"}
    for typed, sentence in sentences.items():
        monkeypatch.setattr(sys, "argv", ["train.py", *own, *data, *small, typed])
        assert train() == 2 and sentence in capsys.readouterr().err
    assert len(list((tmp_path / "outputs" / "debug" / "runs").iterdir())) == 1


RAISES = """
from ringshard.registry import register


@register("hook", "lamp")
class Lamp:
    def after_step(self, trainer, last):
        if trainer.state.step == 3:
            raise RuntimeError("the lamp went out")
"""


def test_a_run_whose_own_hook_raises_is_finished_in_mlflow(tmp_path: Path) -> None:
    (tmp_path / "lamp.py").write_text(RAISES)
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 500)
    own = ("user.modules=[lamp]", "+train.hooks.lamp={}", "parallelism=single")
    data = ("data=text_files", "data.path=text.txt", "data.split=position", "data.seq_len=32")
    small = ("experiment=smoke", "output.debug=false", "data.tokenizer.kind=characters")
    ended = _train(tmp_path, *small, *own, *data, "model.config.num_hidden_layers=1")
    assert ended.returncode == 1, ended.stderr
    assert ended.stderr.rstrip().endswith("RuntimeError: the lamp went out")
    (path,) = (tmp_path / "outputs/runs").iterdir()
    run = RunFolder.of(path, f"sqlite:///{tmp_path / 'outputs/mlflow.db'}", "ringshard")
    found = remote(run)
    assert (found.info.status, found.data.tags["ringshard.state"]) == ("FAILED", "failed")
    assert dict(history(run)) == curve(path) and set(curve(path)) == {1, 2, 3}


def test_the_code_of_the_readme_does_not_run(tmp_path: Path) -> None:
    """All four kinds of it at once, as its commands have them."""
    (code,) = re.findall(r"```python\n(.*?)```", (CHECKOUT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "mycode.py").write_text(code)
    sizes = "hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 2"
    fields = "args: {count: 30}, prompt_field: question, text_field: answer"
    own = (
        *("user.modules=[mycode]", "optimizer=custom", "optimizer.name=my_sgd"),
        "optimizer.args={momentum: 0.95}",
        *("model=custom", "model.type=my_llama", f"model.config={{{sizes}}}"),
        *("~data.corpora.python_stdlib", f"+data.corpora.s={{kind: custom, name: sums, {fields}}}"),
        "+train.hooks.cheer={every: 3}",
    )
    small = ("experiment=smoke", "parallelism=single", "tracking=jsonl", "data.seq_len=32")
    ended = _train(tmp_path, *own, *small)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("tokens, keep going") == 2
