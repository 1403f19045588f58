"""What a person sees of a run: a start block, progress with the time left, evaluations.

On a terminal a rich progress bar; elsewhere aligned lines without escape codes. The same lines go
to a log file. Neither a closed pipe nor a full disk stops the run.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO, cast

import rich.console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from ringshard.streams import Unbreakable


class Console:
    """The console of rank 0; steps are optimizer steps, of which `total_steps` are planned."""

    def __init__(
        self,
        total_steps: int,
        first_step: int = 0,
        is_terminal: bool | None = None,
        log: Path | None = None,
    ) -> None:
        """`first_step` is the step resumed from, `log` a file that lines are appended to."""
        self._total, self._first, self._began = total_steps, first_step, time.monotonic()
        self._rich = _console(sys.stdout.isatty() if is_terminal is None else is_terminal)
        self._log = Unbreakable(log.open("a", encoding="utf-8")) if log else None
        self._bar = _bar(self._rich) if _redraws(self._rich) else None
        self._task: TaskID | None = None

    def start(self, title: str, facts: Mapping[str, str]) -> None:
        """Print what is about to run; from here on the time counts."""
        width = max(map(len, facts), default=0)
        lines = [f"  {name:<{width}}  {value}" for name, value in facts.items()]
        self._print("\n".join([title, *lines]) + "\n")
        self._began = time.monotonic()
        if self._bar:
            self._task = self._bar.add_task("", total=self._total, completed=self._first, facts="")
            self._bar.start()

    def step(self, step: int, metrics: Mapping[str, float], total: int | None = None) -> None:
        """Show the metrics of a training step; `total` is a better guess of the run's steps."""
        self._total = total or self._total
        left = f"{_clock(self._seconds_left(step))} left"
        line = f"{self._position(step)}  {_join(_STEP, metrics)}  {left}"
        if self._bar is None or self._task is None:
            self._print(line)
        else:
            self._write_log(line)
            facts = f"{_join(_BAR, metrics)}  {left}"
            self._bar.update(
                self._task, completed=step, total=self._total, facts=facts, refresh=True
            )

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of an evaluation."""
        self._print(f"{self._position(step)}  {_join(_EVALUATION, metrics)}", style="bold")

    def note(self, text: str) -> None:
        """Print a line of text."""
        self._print(text)

    def close(self) -> None:
        """Leave the bar where it stands and close the log file."""
        if self._bar:
            self._bar.stop()
        if self._log:
            self._log.close()

    def _position(self, step: int) -> str:
        return f"step {step:>{len(str(self._total))}}/{self._total}"

    def _seconds_left(self, step: int) -> float | None:
        done = step - self._first
        return (time.monotonic() - self._began) / done * (self._total - step) if done > 0 else None

    def _print(self, text: str, style: str = "") -> None:
        self._write_log(text)
        self._rich.print(Text(text, style=style), soft_wrap=True)

    def _write_log(self, line: str) -> None:
        if self._log:
            self._log.write(line + "\n")
            self._log.flush()


_BAR = {"train/loss": "loss {:.4f}", "perf/tokens_per_s": "{:,.0f} tok/s"}
_STEP = {
    "train/loss": "loss {:.4f}",
    "train/grad_norm": "grad {:.2f}",
    "train/lr": "lr {:.2e}",
    "perf/tokens_per_s": "{:>7,.0f} tok/s",
    "perf/mfu": "mfu {:.1%}",
}
_EVALUATION = {"val/loss": "validation loss {:.4f}", "val/perplexity": "perplexity {:.2f}"}


def _join(forms: Mapping[str, str], metrics: Mapping[str, float]) -> str:
    return "  ".join(form.format(metrics[key]) for key, form in forms.items() if key in metrics)


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "-:--"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _console(is_terminal: bool) -> rich.console.Console:
    out = cast(TextIO, Unbreakable(sys.stdout))
    return rich.console.Console(file=out, force_terminal=is_terminal, highlight=False)


def _redraws(console: rich.console.Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal


def _bar(console: rich.console.Console) -> Progress:
    """A bar redrawn by `step` alone: a refreshing thread would take time from training."""
    text = TextColumn(
        "{task.completed}/{task.total}  {task.fields[facts]}",
        table_column=Column(no_wrap=True, overflow="ellipsis"),
    )
    return Progress(
        BarColumn(bar_width=24),
        text,
        console=console,
        auto_refresh=False,
        # What others print, a debugger's prompt for one, must not wait for a whole line.
        redirect_stdout=False,
        redirect_stderr=False,
    )
