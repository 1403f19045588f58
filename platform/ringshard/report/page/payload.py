"""The numbers that the page draws, as JSON: curves as packed columns, all else as it is."""

import base64
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ringshard.report.compared import AXES, Compared, along, last, mfu, tokens_per_s, twin
from ringshard.report.curve import Curve, Floats, gapped, thinned
from ringshard.report.goodput import PARTS
from ringshard.report.groups import SEEDS, by_seed, differences, labels, shown, telling
from ringshard.report.page.colors import colors

CURVES = {
    "train/loss": "Loss [nats per token]",
    "train/grad_norm": "Gradient norm",
    "train/lr": "Learning rate",
}
MOST_POINTS = 15_000
"""Buckets of all runs of a plot together; each is drawn by its least and its greatest value."""
MOST_DIMENSIONS = 8
Json = dict[str, Any]


def payload(runs: Sequence[Compared], metric: str, axis: str) -> Json:
    """All that the page's plots need."""
    names, painted = labels(runs), colors(len(runs))
    return {
        "axis": axis,
        "axes": {name: title for name, (title, _) in AXES.items() if known(runs, name)},
        "runs": [
            {"name": name, "folder": run.name, "state": run.state, "color": color}
            for name, run, color in zip(names, runs, painted, strict=True)
        ],
        "curves": _charts(runs, metric),
        "bars": bars(runs),
        "goodput": goodput(runs),
        "parallel": parallel(runs),
    }


def known(runs: Sequence[Compared], axis: str) -> bool:
    """Whether a run tells where it was on an axis."""
    source = AXES[axis][1]
    return axis in ("step", "time") or any(source in run.curves for run in runs)


def _charts(runs: Sequence[Compared], metric: str) -> list[Json]:
    wanted = CURVES if metric in CURVES else {metric: metric, **CURVES}
    wanted = {metric: wanted[metric], **wanted}  # first what was asked for
    groups, found = by_seed(runs), []
    for key, title in wanted.items():
        other = twin(key)
        chart: Json = {
            "id": key,
            "title": title,
            "log": key in ("train/grad_norm",),
            "lines": [_line(run, key, len(runs)) for run in runs],
            "dots": [_line(run, other, len(runs)) if other != key else None for run in runs],
            "seeds": _seeds(runs, groups, key),
            "level": _level(runs) if key.endswith("/loss") else None,
        }
        if any(chart["lines"]) or any(chart["dots"]):
            found.append(chart)
    return found


def _line(run: Compared, key: str, count: int) -> Json | None:
    if key not in run.curves:
        return None
    curve = run.curves[key].drawn(buckets(count))
    return {"x": _along(run, key, curve), "y": packed(curve.values)}


def buckets(count: int) -> int:
    """Into how many stretches the curves of so many runs are cut."""
    return max(100, min(1000, MOST_POINTS // count))


def _along(run: Compared, metric: str, curve: Curve) -> Json:
    columns = {axis: along(run, metric, curve, axis) for axis in AXES}
    return {axis: packed(column) for axis, column in columns.items() if np.isfinite(column).any()}


def packed(column: Floats) -> str:
    """Little-endian numbers in base64: float32 where it tells all whole numbers, else float64."""
    is_small = not len(column) or np.nanmax(np.abs(column), initial=0.0) < 2**24
    kind = "f4" if is_small else "f8"
    return f"{kind}:{base64.b64encode(column.astype(f'<{kind}').tobytes()).decode()}"


def _level(runs: Sequence[Compared]) -> float | None:
    """The bigram entropy, where it is the same of all."""
    told = {run.bigram_entropy for run in runs} - {None}
    return told.pop() if len(told) == 1 else None


def _seeds(runs: Sequence[Compared], groups: Sequence[Sequence[int]], key: str) -> list[Json]:
    """Mean and deviation of runs that differ in their seed alone, at the steps that all have."""
    found = []
    for group in groups:
        curves = [runs[place].curves[key] for place in group if key in runs[place].curves]
        if len(curves) < 2:
            continue
        steps = sorted(set.intersection(*(set(curve.steps.tolist()) for curve in curves)))
        if not steps:
            continue
        values = np.stack([curve.at(np.array(steps)) for curve in curves])  # (seeds, steps)
        middle, wide = values.mean(0), values.std(0, ddof=1)
        ends = middle - wide, middle + wide
        few = buckets(len(runs)) // len(ends)
        places = np.unique(np.concatenate([thinned(end, few) for end in ends]))
        first = runs[group[0]]
        like = Curve(np.array(steps), first.curves[key].at_times(np.array(steps)), middle)
        found.append(
            {
                "runs": group,
                "x": _along(first, key, like.of(places)),
                "y": packed(gapped(middle[places])),
                "low": packed(gapped(ends[0][places])),
                "high": packed(gapped(ends[1][places])),
            }
        )
    return found


def bars(runs: Sequence[Compared]) -> list[Json]:
    """A number or None of each run."""
    rows = {
        ("speed", "Speed [tokens/s]"): [tokens_per_s(run) for run in runs],
        ("mfu", "Model FLOPs utilization"): [mfu(run) for run in runs],
    }
    return [
        {"id": name, "title": title, "values": [finite(value) for value in values]}
        for (name, title), values in rows.items()
        if any(value is not None for value in values)
    ]


def goodput(runs: Sequence[Compared]) -> Json | None:
    """Seconds of each run by part of its wall time; None where nothing tells."""
    told = [run.goodput for run in runs]
    if not any(one and one.wall_ms for one in told):
        return None
    parts = {
        part: [one.seconds[part] if one else 0.0 for one in told]
        for part in PARTS
        if any(one and one.parts[part] for one in told)
    }
    return {"parts": parts, "about": {part: PARTS[part] for part in parts}}


def parallel(runs: Sequence[Compared]) -> Json | None:
    """A vertical axis for each key that tells the runs apart, and for where they got."""
    keys = [key for key in telling(runs, differences(runs)) if key not in SEEDS]
    keys = keys[:MOST_DIMENSIONS] or [key for key in SEEDS if key in differences(runs)]
    if len(runs) < 3 or not keys:
        return None
    dimensions = [_dimension(key, [run.config.get(key) for run in runs]) for key in keys]
    for key, title in {"val/loss": "val loss", "train/loss": "train loss"}.items():
        if any(key in run.curves for run in runs):
            dimensions.append(_dimension(title, [last(run, key) for run in runs], _RESULT))
    speeds = [tokens_per_s(run) for run in runs]
    if any(speeds):
        dimensions.append(_dimension("tok/s", speeds, "{:,.0f}".format))
    return {"dimensions": dimensions}


_RESULT = "{:.4g}".format


def _dimension(title: str, values: Sequence[object], form: Callable[[Any], str] = shown) -> Json:
    """Places in [0, 1] of values on an axis, logarithmic where they span a decade."""
    texts = ["none" if value is None else form(value) for value in values]
    numbers = [_number(value) for value in values]
    words = any(n is None and v is not None for n, v in zip(numbers, values, strict=True))
    if words:
        kinds = sorted(set(texts))
        scale = {text: place / max(len(kinds) - 1, 1) for place, text in enumerate(kinds)}
        return {"title": title, "places": [scale[text] for text in texts], "texts": texts}
    return {"title": title, "places": _scaled(numbers), "texts": texts}


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _scaled(numbers: Sequence[float | None]) -> list[float | None]:
    finite_ones = [n for n in numbers if n is not None and math.isfinite(n)]
    low, high = min(finite_ones, default=0.0), max(finite_ones, default=1.0)
    if low > 0 and high / low >= 10:
        logs = [math.log(n) if n and math.isfinite(n) else None for n in numbers]
        return _between(logs, math.log(low), math.log(high))
    return _between(numbers, low, high)


def _between(numbers: Sequence[float | None], low: float, high: float) -> list[float | None]:
    wide = high - low
    return [
        None
        if number is None or not math.isfinite(number)
        else (number - low) / wide
        if wide
        else 0.5
        for number in numbers
    ]


def finite(value: float | None) -> float | None:
    """The value, or None where JSON has no word for it."""
    return value if value is not None and math.isfinite(value) else None
