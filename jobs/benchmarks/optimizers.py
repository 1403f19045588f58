"""Validation loss of each optimizer after equal steps and in equal time, each at its best rate.

Rates are swept by Ringshard's own sweep on one seed, the best one is run on three.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from benchmarks.command import ROOT

STEPS, SEEDS = 200, (1, 2, 3)
FIRST_RATE: dict[str, float] = {
    "adamw": 3e-3,
    "lion": 1.2e-3,
    "lion8bit": 1.2e-3,
    "muon": 1.2e-2,
    "muon_mona": 1.2e-2,
    "muon_hyperball": 0.08,
    "muon_mona_hyperball": 0.08,
    "adamw_hyperball": 0.02,
}
"""Where the search for the best rate begins; those of the embedding and of vectors are 3e-3 where
matrices have another rule."""
OWN = {"lion": ["optimizer.weight_decay=1.0"], "lion8bit": ["optimizer.weight_decay=1.0"]}
SETTING = [
    "tracking=jsonl",
    "parallelism=single",
    "model.config.num_hidden_layers=6",
    "hardware.threads_per_process=1",
    "data.seq_len=64",
    "train.global_batch=16",
    "train.eval_sequences=256",
    "train.eval_every=50",
    "schedule=linear",
    "schedule.warmup_steps=40",
    "checkpoint.every=0",
    "checkpoint.at_end=false",
]
"""tiny with 6 layers (1.1 M parameters); 1,024 tokens a step."""


@dataclass(frozen=True)
class Result:
    """What one run came to."""

    folder: Path
    lr: float
    seed: int
    steps: int
    loss: float
    step_s: float


def run() -> list[dict[str, Any]]:
    """One row per optimizer; the curves of the first seed are drawn to docs/optimizers.png.

    Rates are a factor of two apart, half and double the best one always among those tried.

    RINGSHARD_TEXT names a text to read instead of the sources of the running Python. Equal time:
    as many steps as fit into the time of AdamW's, the schedule made for them.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _train(root, "adamw", STEPS, {FIRST_RATE["adamw"]}, SEEDS[:1], "prepare")
        found = {name: _tuned(root, name) for name in FIRST_RATE}
        base = _step_s(found["adamw"])
        timed = {name: _in_time(root, name, found[name], base) for name in FIRST_RATE}
        _plot([results[0].folder for results in found.values()])
        return [_row(name, found[name], timed[name], base) for name in FIRST_RATE]


def _tuned(root: Path, name: str) -> list[Result]:
    """The best rate on every seed."""
    tried: set[float] = set()
    best = FIRST_RATE[name]
    while not (wanted := {best / 2, best, best * 2}) <= tried:
        tried |= wanted
        results = _train(root, name, STEPS, tried, SEEDS[:1], "rates")
        best = min(results, key=lambda result: result.loss).lr
    return _train(root, name, STEPS, {best}, SEEDS, "rates", best)


def _in_time(root: Path, name: str, equal: list[Result], base: float) -> list[Result]:
    steps = min(2 * STEPS, round(STEPS * base / _step_s(equal)))
    if abs(steps / STEPS - 1) < 0.05:
        return equal
    return _train(root, name, steps, {equal[0].lr}, SEEDS, "time", equal[0].lr)


def _train(
    root: Path,
    name: str,
    steps: int,
    rates: set[float],
    seeds: tuple[int, ...],
    sweep: str,
    lr: float | None = None,
) -> list[Result]:
    """Runs a sweep, or fills in what it lacks; the results at rate `lr`, or at all rates."""
    extra = ["optimizer.adamw_lr=3e-3"] if name not in ("adamw", "lion", "lion8bit") else []
    text = os.environ.get("RINGSHARD_TEXT")
    data = ["data=text_files", f"data.path={text}", "data.split=position"] if text else []
    command = [sys.executable, str(ROOT / "jobs/train.py"), "-m", f"output.root={root}"]
    command += [f"sweep.name={name}-{sweep}", f"output.name={name}", f"optimizer={name}"]
    command += [f"train.steps={steps}", f"optimizer.lr={','.join(map(str, sorted(rates)))}"]
    command += [f"train.seed={','.join(map(str, seeds))}", *SETTING, *OWN.get(name, []), *extra]
    subprocess.run([*command, *data], check=True, cwd=root, stdout=subprocess.DEVNULL)
    found = [_result(path) for path in root.glob(f"sweeps/{name}-{sweep}/*/run.json")]
    chosen = [result for result in found if lr in (None, result.lr)]
    return sorted(chosen, key=lambda result: result.seed)


def _result(path: Path) -> Result:
    attempt = path.parent / "attempts/1"
    job = yaml.safe_load((attempt / "job.yaml").read_text(encoding="utf-8"))
    result = json.loads((attempt / "result.json").read_text(encoding="utf-8"))
    tokens = job["train"]["global_batch"] * job["data"]["seq_len"]
    return Result(
        path.parent,
        job["optimizer"]["lr"],
        job["train"]["seed"],
        result["step"],
        result["val_loss"],
        tokens / result["tokens_per_s"],
    )


def _step_s(results: list[Result]) -> float:
    """Of the least disturbed run [s]."""
    return min(result.step_s for result in results)


def _plot(folders: list[Path]) -> None:
    command = [sys.executable, "-m", "ringshard.cli", "compare", *map(str, folders)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "platform")}
    picture = ["--png", str(ROOT / "docs/optimizers.png")]
    subprocess.run([*command, *picture], check=True, env=environment, stdout=subprocess.DEVNULL)


def _row(name: str, equal: list[Result], timed: list[Result], base: float) -> dict[str, Any]:
    losses = [result.loss for result in equal]
    return {
        "optimizer": name,
        "lr": f"{equal[0].lr:g}",
        f"loss, {STEPS} steps": round(statistics.mean(losses), 4),
        "seeds": " ".join(f"{loss:.3f}" for loss in losses),
        "± of the mean": round(statistics.stdev(losses) / math.sqrt(len(losses)), 4),
        "step over AdamW's": round(_step_s(equal) / base, 2),
        "steps in AdamW's time": timed[0].steps,
        "loss then": round(statistics.mean(r.loss for r in timed), 4),
    }
