"""A picture of curves: training as lines, validation as dots on the same axes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, StrMethodFormatter

from ringshard.report.compared import AXES, Compared, along, twin
from ringshard.report.groups import labels
from ringshard.report.page.colors import colors

GREY, GRID = "#767676", "#e6e6e6"
MOST_NAMES = 24
"""Of a legend."""


_BUCKETS = 2000
"""Into which a curve is cut, each drawn by its least and its greatest value."""


def draw(runs: Sequence[Compared], metric: str, path: Path, axis: str = "step") -> None:
    """Write a PNG of a metric along an axis, with its validation twin and the bigram entropy."""
    axes = panel()
    _frame(axes, metric, axis)
    for run, label, color in zip(runs, labels(runs), colors(len(runs)), strict=True):
        _run(axes, run, metric, axis, label_of(label) if len(runs) > 1 else "", color)
    if metric.endswith("/loss"):
        _bigram(axes, {run.bigram_entropy for run in runs} - {None})
    legend(axes)
    save(axes, path)


def panel(width: float = 7, height: float = 4) -> Axes:
    """Empty axes in a figure of their own [inches]."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    return axes


def save(axes: Axes, path: Path) -> None:
    """Write the figure of these axes as PNG."""
    cast(Figure, axes.figure).savefig(path, format="png", dpi=150)


def label_of(name: str) -> str:
    """A name as matplotlib draws it, which takes a pair of $ for a formula."""
    return name.replace("$", r"\$")


def _frame(axes: Axes, metric: str, axis: str) -> None:
    axes.set_xlabel(AXES[axis][0])
    if axis in ("step", "tokens"):
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(_readable))
    axes.set_ylabel("loss [nats per token]" if metric.endswith("/loss") else metric)
    axes.grid(axis="y", color=GRID, linewidth=0.8)


def _readable(value: float, _place: int) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def legend(axes: Axes) -> None:
    """Names of what is drawn; beside it where there are many, which would hide it."""
    lines, texts = axes.get_legend_handles_labels()
    many = len(texts) > 6
    aside = {"loc": "upper left", "bbox_to_anchor": (1, 1), "fontsize": "x-small"} if many else {}
    if len(texts) > MOST_NAMES:
        texts[MOST_NAMES - 1] = f"and {len(texts) - MOST_NAMES + 1} more"
    axes.legend(
        lines[:MOST_NAMES],
        texts[:MOST_NAMES],
        facecolor="white",
        edgecolor="none",
        framealpha=1,
        **aside,
    )


def _run(axes: Axes, run: Compared, metric: str, axis: str, label: str, color: str) -> None:
    if metric in run.curves:
        curve = run.curves[metric].drawn(_BUCKETS)
        axes.plot(
            along(run, metric, curve, axis),
            curve.values,
            color=color,
            lw=1.2,
            label=label or metric,
        )
    other = twin(metric)
    if other != metric and other in run.curves:
        curve = run.curves[other].drawn(_BUCKETS)
        alone: dict[str, Any] = (
            {"label": other, "color": "#d1495b"} if not label else {"color": color}
        )
        place = along(run, other, curve, axis)
        axes.plot(place, curve.values, "o", ls=":", ms=5, lw=1, mec="white", **alone)


def _bigram(axes: Axes, entropies: set[float | None]) -> None:
    for place, entropy in enumerate(sorted(value for value in entropies if value is not None)):
        label = "bigram entropy of the validation split" if place == 0 else None
        axes.axhline(entropy, color=GREY, ls="--", lw=1, label=label)
