"""The plots of the page as pictures."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from ringshard.report.compared import AXES, Compared, is_timed, twin
from ringshard.report.curves import GREY, GRID, draw, label_of, legend, panel, save
from ringshard.report.groups import labels
from ringshard.report.page.colors import colors
from ringshard.report.page.payload import CURVES, Json, bars, goodput, known, parallel
from ringshard.report.scaling import Series

_HIGHEST = 100.0
"""Of a picture with a row for each run [inches]."""
_MOST_TICKS = 8


def draw_all(
    runs: Sequence[Compared], metric: str, axis: str, folder: Path, scaling: Sequence[Series]
) -> Iterator[Path]:
    """PNG files in a folder, which is made: a metric and the loss over all axes; gradient norm and
    learning rate over one; speed, where the time went, settings and results."""
    folder.mkdir(exist_ok=True)
    for key in dict.fromkeys((metric, *CURVES)):
        if any(key in run.curves or twin(key) in run.curves for run in runs):
            over = AXES if key in (metric, "train/loss") and not is_timed(key) else (axis,)
            for one in filter(lambda name: known(runs, name), over):
                path = folder / f"{key.replace('/', '-')}-over-{one}.png"
                draw(runs, key, path, one)
                yield path
    names = [label_of(name) for name in labels(runs)]
    pictures = {chart["id"]: _bars(chart, names) for chart in bars(runs)}
    if told := goodput(runs):
        pictures["goodput"] = _stacked(told["parts"], names)
    if told := parallel(runs):
        pictures["settings-and-results"] = _parallel(told["dimensions"], len(runs))
    pictures |= {f"scaling-{place}": _scaling(series) for place, series in enumerate(scaling, 1)}
    for name, axes in pictures.items():
        save(axes, folder / f"{name}.png")
        yield folder / f"{name}.png"


def _rows(title: str, names: Sequence[str]) -> Axes:
    """A row for each run, the first one above."""
    axes = panel(height=min(1 + 0.3 * len(names), _HIGHEST))
    axes.set_xlabel(title)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    return axes


def _bars(chart: Json, names: Sequence[str]) -> Axes:
    axes = _rows(chart["title"], names)
    widths = [value or 0.0 for value in chart["values"]]
    axes.barh(range(len(names)), widths, 0.7, color=colors(len(names)))
    return axes


def _stacked(parts: Mapping[str, Sequence[float]], names: Sequence[str]) -> Axes:
    axes = _rows("wall time [h]", names)
    left = [0.0] * len(names)
    for (part, seconds), color in zip(parts.items(), colors(len(parts)), strict=True):
        hours = [value / 3600 for value in seconds]
        axes.barh(range(len(names)), hours, 0.7, left, color=color, label=part)
        left = [a + b for a, b in zip(left, hours, strict=True)]
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), edgecolor="none")
    return axes


def _parallel(dimensions: Sequence[Json], count: int) -> Axes:
    """A vertical axis for each dimension, with some of its values; a line for each run."""
    axes = panel(width=max(7.0, 1.6 * len(dimensions)))
    axes.set_xticks(range(len(dimensions)), [label_of(one["title"]) for one in dimensions])
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xlim(-0.2, len(dimensions) - 0.4)
    for number, one in enumerate(dimensions):
        axes.axvline(number, color=GREY, lw=0.8)
        for place, text in _ticks(one):
            told = axes.text(number + 0.03, place, label_of(text), fontsize="x-small", va="center")
            told.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1})
    for run, color in enumerate(colors(count)):
        heights = [one["places"][run] for one in dimensions]
        line = [math.nan if height is None else height for height in heights]
        axes.plot(range(len(dimensions)), line, color=color, lw=1.2)
    return axes


def _ticks(dimension: Json) -> list[tuple[float, str]]:
    """Some values of a dimension, not too close to each other."""
    told = zip(dimension["places"], dimension["texts"], strict=True)
    kept: list[tuple[float, str]] = []
    for place, text in sorted((place, text) for place, text in told if place is not None):
        if not kept or place - kept[-1][0] >= 1 / _MOST_TICKS:
            kept.append((place, text))
    return kept


def _scaling(series: Series) -> Axes:
    axes, told = panel(), series.plot()
    axes.set_title(label_of(series.title), fontsize="medium")
    axes.set_xlabel("processes")
    axes.set_ylabel("tokens/s")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(told["devices"], [str(count) for count in told["devices"]])
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.plot(told["devices"], told["ideal"], color=GREY, ls="--", lw=1, label="ideal")
    axes.plot(told["devices"], told["rates"], "o-", color=colors(1)[0], label="measured")
    legend(axes)
    return axes
