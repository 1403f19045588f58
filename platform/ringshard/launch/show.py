"""What a command prints about its runs: the end of a run, the table of a sweep."""

import math
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ringshard.checkpoint.directory import committed
from ringshard.config.leaves import named
from ringshard.config.schema.job import Job
from ringshard.config.schema.train import Train
from ringshard.launch.identity import Run
from ringshard.launch.progress import last_value
from ringshard.launch.rundir import RunDir


def ended(run: RunDir, attempt: int, outcome: str) -> None:
    """Where the run lies, what came out, and what can be done next."""
    result, job = run.result(attempt), run.job(attempt)
    here = short(run.path)
    lines = [("run", f"{here}  ({run.told(outcome)})")]
    if skipped := result.get("skipped_at_end"):
        reason = f"the last {skipped} updates were skipped, their gradient was not finite"
        lines.append(("diverged", f"{reason}: nothing was learned from there on, nor would be"))
        lines.append(("instead", _calmer(run, attempt, job)))
    if result.get("train_loss") is not None:
        lines += [("loss", _losses(result)), ("speed", f"{result['tokens_per_s']:,.0f} tokens/s")]
    more = result.get("step", 0) * 2
    if committed(run.path / "checkpoints") and not skipped:
        lines.append(("resume", f"{program()} resume={here}" + _longer(run, attempt, more)))
    if job.tracking.backend.ships:
        lines.append(("curves", _curves(job)))
    lines.append(("compare", f"{typed('ringshard')} compare {here} OTHER_RUN"))
    print()
    for name, text in lines:
        print(f"{name:<8} {text}")


def _calmer(run: RunDir, attempt: int, job: Job) -> str:
    """A new run from the first step at a third of the rate, with clipped gradients."""
    changed = {"optimizer.lr": f"{job.optimizer.lr / 3:.2g}"}
    if not job.train.grad_clip:
        changed["train.grad_clip"] = f"{Train().grad_clip:g}"
    kept = [o for o in run.overrides(attempt) if named(o) not in changed]
    words = [*run.about().options, *kept, *(f"{key}={value}" for key, value in changed.items())]
    return f"{program()} {shlex.join(words)}"


def _curves(job: Job) -> str:
    """What shows them: the interface of the root's own database, or the address of another."""
    root = Path(job.output.root)
    if job.tracking.uri != f"sqlite:///{root / 'mlflow.db'}":
        return job.tracking.uri
    option = "" if root == Path("outputs").absolute() else f" --root {short(root)}"
    return f"{typed('ringshard')} track ui{option}"


def program() -> str:
    """How this command was called."""
    called = Path(sys.argv[0])
    if called.suffix == ".py":
        return f"{typed(Path(sys.executable).name)} {short(called.resolve())}"
    return typed(called.name)


def typed(program: str) -> str:
    """A program of this Python's environment as one would type it here: its name alone where the
    shell would find this one, which it does in an environment that is activated."""
    own = Path(sys.executable).with_name(program)
    found = shutil.which(program)
    return program if found and Path(found).absolute() == own else short(own)


def _longer(run: RunDir, attempt: int, steps: int) -> str:
    """A finished run can only be resumed to become longer."""
    finished = run.result(attempt).get("outcome") == "finished"
    return f" train.steps={steps}" if finished and run.job(attempt).train.steps else ""


def _losses(result: dict[str, Any]) -> str:
    named = {"train": "train_loss", "validation": "val_loss"}
    parts = [f"{n} {result[k]:.4f}" for n, k in named.items() if result.get(k) is not None]
    entropy = result.get("bigram_entropy")
    note = f" (bigram entropy of the validation text {entropy:.4f})" if entropy is not None else ""
    return ", ".join(parts) + note


def table(rows: list[tuple[Run, str, int]]) -> None:
    """One line per member of a sweep: what it was given, how it ended, its losses."""
    own = own_overrides([run for run, _, _ in rows])
    results = [run.dir.result(attempt) if attempt else {} for run, _, attempt in rows]
    steps = list({result["step"] for result in results if "step" in result})
    shown = Table(box=None, pad_edge=False)
    shown.add_column("member", overflow="fold")
    for name in ("outcome", "train", "validation", *(["steps"] if steps[1:] else []), "run"):
        shown.add_column(name, no_wrap=True)
    for (run, outcome, _), result in zip(rows, results, strict=True):
        losses = [result.get("train_loss"), result.get("val_loss")]
        numbers = ["" if loss is None else f"{loss:.4f}" for loss in losses]
        numbers += [str(result.get("step", ""))] if steps[1:] else []
        shown.add_row(
            "\n".join(own[run.dir.path]), run.dir.told(outcome), *numbers, run.dir.path.name
        )
    print(f"\nruns in {short(rows[0][0].dir.path.parent)}")
    Console().print(shown)
    if steps[1:]:
        print("the members have not trained equally long: their losses say little of each other")


def own_overrides(runs: list[Run]) -> dict[Path, list[str]]:
    """What each member of a sweep was given that others were not."""
    common = set.intersection(*(set(run.overrides) for run in runs)) if runs[1:] else set()
    return {run.dir.path: [o for o in run.overrides if o not in common] for run in runs}


def unsent(run: RunDir) -> str:
    """What is said where MLflow did not take all in time."""
    return (
        "not all points are in MLflow yet, they are safe in the run:"
        f" {typed('ringshard')} track sync {short(run.path)}"
    )


def short(path: Path) -> str:
    """A path as one would type it here."""
    relative = os.path.relpath(path)
    return shlex.quote(str(path) if relative.startswith("..") else relative)


def results(runs: list[Run]) -> None:
    """The results, the best first."""
    launcher = runs[0].job.launcher if runs else None
    if launcher is None or launcher.metric is None:
        return
    sign = 1 if launcher.minimize else -1
    found = {run.dir.path: last_value(run.dir.path, launcher.metric) for run in runs}
    own = own_overrides(runs) if runs[1:] else {}
    for path, value in sorted(found.items(), key=lambda item: _rank(item[1], sign)):
        told = "none" if value is None else f"{value:.6g}"
        print(f"{path.name}  {launcher.metric}={told}  {' '.join(own.get(path, []))}".rstrip())


def _rank(value: float | None, sign: int) -> float:
    """No value, and one that is no number, come last."""
    return math.inf if value is None or math.isnan(value) else sign * value
