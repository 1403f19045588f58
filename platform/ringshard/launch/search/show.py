"""What a search prints at its end: its best trials, and what can be done with them."""

import math
import shlex

from rich.console import Console
from rich.table import Table

from ringshard.launch.search.plan import Plan
from ringshard.launch.search.study import Trial
from ringshard.launch.show import program, short, typed

_ROWS = 10


def ranked(trials: list[Trial], minimize: bool) -> list[Trial]:
    """The best first; those without a value last, as they came."""
    sign = 1 if minimize else -1
    return sorted(trials, key=lambda t: math.inf if t.value is None else sign * t.value)


def ended(plan: Plan, trials: list[Trial]) -> None:
    """The table of the best trials, and the commands that come next."""
    best = ranked(trials, plan.policy.launcher.minimize)
    counts = {state: sum(t.state == state for t in trials) for state in _WORDS}
    told = ", ".join(f"{count} {_WORDS[state]}" for state, count in counts.items() if count)
    print(f"\n{len(trials)} trials: {told}")
    Console().print(_table(plan, best[:_ROWS]))
    here, ours = short(plan.folder), typed("ringshard")
    lines = {"runs": f"{ours} runs list {here}", "compare": f"{ours} compare {here}"}
    if best and best[0].value is not None:
        run = short(plan.folder / best[0].facts["run"])
        again = shlex.join([*plan.command.options, *plan.command.overrides])
        point = shlex.join(plan.space.overrides(best[0].point))
        lines = {
            "best": f"{run}  {plan.metric}={best[0].value:.6g}",
            "train": " ".join(word for word in (program(), again, point) if word),
            **lines,
        }
    print("\n".join(f"{name:<8} {text}" for name, text in lines.items()), flush=True)


_WORDS = {"complete": "done", "pruned": "pruned", "fail": "failed", "running": "at work"}


def _table(plan: Plan, trials: list[Trial]) -> Table:
    shown = Table(box=None, pad_edge=False)
    shown.add_column("trial", justify="right")
    shown.add_column(plan.metric, justify="right")
    for one in plan.space.dimensions:
        shown.add_column(one.key.lstrip("+"), justify="right", overflow="fold")
    for title in ("state", "run"):
        shown.add_column(title, overflow="fold")
    for trial in trials:
        value = "" if trial.value is None else f"{trial.value:.6g}"
        point = [_short(one.text(trial.point[one.key])) for one in plan.space.dimensions]
        why = trial.facts.get("why") or trial.facts.get("run", "")
        shown.add_row(str(trial.number + 1), value, *point, _WORDS[trial.state], str(why))
    return shown


def _short(text: str) -> str:
    try:
        return f"{float(text):.6g}"
    except ValueError:
        return text
