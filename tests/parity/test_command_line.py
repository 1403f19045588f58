"""C1 as a user meets it: the same command on another topology, from jobs/train.py to spool."""

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from runs import curve

from ringshard.config.schema.reader import read_job

ROOT = Path(__file__).parents[2]
SMALL = [
    "data=text_files",
    "+data.corpora.text.prompt_field=question",
    "+data.corpora.text.text_field=answer",
    "data.seq_len=48",
    "data.packing=none",
    "data.validation_share=0.1",
    "model.config={hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, "
    "num_attention_heads: 4, num_key_value_heads: 2}",
    "train.steps=20",
    "train.log_every=7",
    "optimizer.lr=3e-3",
    "tracking=jsonl",
    "checkpoint.every=0",
    "output.name=run",
]
AXES = {
    "one process": ["parallelism=single"],
    "fsdp": ["parallelism=fsdp"],
    "hsdp": ["parallelism=hsdp", "hardware.processes_per_node=4", "train.micro_batch=4"],
    "ring": ["parallelism=ring"],
    "fsdp_ring": ["parallelism=fsdp_ring", "hardware.processes_per_node=4"],
    "hsdp_ring": ["parallelism=hsdp_ring", "hardware.processes_per_node=4"],
    "balanced": ["parallelism=ring", "parallelism.cp_layout=balanced", "debug.compare_rows=true"],
    "accumulation": ["parallelism=single", "train.micro_batch=4"],
    "tokens": ["parallelism=fsdp", "train.batch_unit=tokens", "train.global_batch=768"],
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions that are not learned, answers of every length that are: no two rows count alike."""
    file = tmp_path_factory.mktemp("corpus") / "pairs.jsonl"
    draw = random.Random(0)
    with file.open("w") as lines:
        for _ in range(600):
            words = draw.choices(["red", "green", "blue"], k=draw.randint(1, 6))
            print(json.dumps({"question": words[0] + "? ", "answer": " ".join(words)}), file=lines)
    return file


def _train(folder: Path, corpus: Path, overrides: list[str]) -> Path:
    command = [sys.executable, str(ROOT / "jobs/train.py"), *SMALL, *overrides]
    command += [f"data.path={corpus}", f"output.root={folder}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (folder / "runs").iterdir()
    return run


@pytest.fixture(scope="module")
def one_process(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _train(tmp_path_factory.mktemp("one"), corpus, AXES["one process"])


def test_the_reference_learns_enough_to_show_wrong_gradients(one_process: Path) -> None:
    losses = list(curve(one_process).values())
    assert losses[-1] < 0.8 * losses[0]


def test_a_model_that_a_ring_would_change_is_trained(corpus: Path, tmp_path: Path) -> None:
    """Told in one sentence before anything is written, whether cp is 1 or not."""
    windowed = ["model=custom", "model.type=mistral", "model.config.sliding_window=16"]
    for way in ("ring", "single"):
        command = [sys.executable, str(ROOT / "jobs/train.py"), *SMALL, *windowed]
        command += [f"parallelism={way}"]
        command += [f"data.path={corpus}", f"output.root={tmp_path / 'out'}"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 2, done.stdout + done.stderr
        told = done.stderr.splitlines()[-1]
        assert "ring attention can't run mistral: 2 layers see 16 keys" in told
        assert "set model.config.sliding_window=null" in told
        assert not (tmp_path / "out").exists()


@pytest.mark.rotated(3)
@pytest.mark.parametrize("axis", [axis for axis in AXES if axis != "one process"])
def test_a_command_with_another_topology_takes_another_curve(
    axis: str, corpus: Path, one_process: Path, tmp_path: Path
) -> None:
    run = _train(tmp_path, corpus, AXES[axis])
    for metric in ("train/loss", "train/grad_norm", "train/targets", "val/loss"):
        expected, got = curve(one_process, metric), curve(run, metric)
        assert list(got) == list(expected)
        np.testing.assert_allclose(list(got.values()), list(expected.values()), rtol=1e-5)
    for metric in ("data/padding", "val/accuracy"):
        assert curve(one_process, metric) == curve(run, metric)
    rings = list(curve(run, "ring/imbalance").values())
    cut = read_job(run / "attempts/1/job.yaml").parallelism.cp > 1
    assert len(rings) == (20 if cut else 0) and all(value >= 1 for value in rings)
