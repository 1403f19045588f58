"""The page: tables as HTML, numbers as JSON, Plotly and our script beside them in one file."""

import html
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from ringshard.errors import ConfigError
from ringshard.report.compare import best, columns, notes, over, spent_together
from ringshard.report.compared import Compared, step
from ringshard.report.goodput import PARTS
from ringshard.report.groups import by_seed, differences, shown, telling, told_apart, unique_names
from ringshard.report.page.payload import Json, buckets, payload
from ringshard.report.scaling import Series, table_rows

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)
"""Nothing is fetched from anywhere."""
_LIVES = ("running", "pending")


def require_plotly() -> str:
    """Plotly's script; raises ConfigError where the package is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ConfigError(
            "--html needs Plotly, which is not installed: pip install 'ringshard[report]'"
        ) from error
    return str(get_plotlyjs())


def page(
    runs: Sequence[Compared], metric: str, axis: str, title: str, scaling: Sequence[Series] = ()
) -> str:
    """A whole HTML document; raises ConfigError without Plotly."""
    plotly = require_plotly()
    data = payload(runs, metric, axis) | {"scaling": [series.plot() for series in scaling]}
    ours = files("ringshard.report.page")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{_text(title)}</title>
<style>{(ours / "page.css").read_text("utf-8")}</style>
</head>
<body>
<h1>{_text(title)}</h1>
<p class="about">{_about(len(runs))}</p>
{_notes(notes(runs, metric))}
{_summary(runs, metric, data)}
{_seeds(runs, metric)}
{_scaling(scaling)}
{_plots(data, runs)}
{_keys(runs)}
<script type="application/json" id="data">{_embedded(data)}</script>
<script>{plotly}</script>
<script>{(ours / "page.js").read_text("utf-8")}</script>
</body>
</html>
"""


def _about(count: int) -> str:
    runs = "1 run" if count == 1 else f"{count} runs"
    return f"{runs} · {datetime.now():%Y-%m-%d %H:%M} · Ringshard {version('ringshard')}"


def _text(value: object) -> str:
    return html.escape(str(value))


def _embedded(data: Json) -> str:
    """JSON that no `</script>` in a name can end."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _notes(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    items = "".join(f"<li>{_text(sentence)}</li>" for sentence in sentences)
    return f'<div class="card notes"><ul>{items}</ul></div>'


def _table(titles: Iterable[tuple[str, bool]], rows: Iterable[Iterable[str]]) -> str:
    """titles: each with whether the column holds numbers; cells are HTML already."""
    head = "".join(f"<th{' class=number' * right}>{_title(title)}</th>" for title, right in titles)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _title(text: str) -> str:
    """It may be broken at its dots."""
    return _text(text).replace(".", ".<wbr>")


def _cell(text: object, kind: str = "") -> str:
    return f'<td class="{kind}">{_text(text)}</td>' if kind else f"<td>{_text(text)}</td>"


MOST_KEYS = 6
"""Differing keys beside the runs; all of them have a table of their own."""


def _summary(runs: Sequence[Compared], metric: str, data: Json) -> str:
    keys, numbers = differences(runs), columns(runs, metric)
    keys = keys if len(keys) <= MOST_KEYS else telling(runs, keys)[:MOST_KEYS]
    marked = [best(column, runs) for column in numbers]
    titles = [("run", False), ("state", False), ("step", True), *((key, True) for key in keys)]
    titles += [(_flat(column.title), True) for column in numbers]
    rows = []
    for place, (run, name) in enumerate(zip(runs, unique_names(runs), strict=True)):
        dot = f'<span class="dot" style="background:{data["runs"][place]["color"]}"></span>'
        row = [f'<td class="name">{dot}{_text(name)}</td>', _cell(run.state, _kind(run.state))]
        row += [_cell(f"{step(run):,}", "number")]
        row += [_cell(shown(run.config.get(key)), "number") for key in keys]
        for column, places in zip(numbers, marked, strict=True):
            value = column.value(run)
            kind = "number best" if place in places else "number"
            row.append(_cell("" if value is None else column.form(value), kind))
        rows.append(row)
    return f'<div class="card">{_table(titles, rows)}</div>'


def _flat(title: str) -> str:
    return title.replace("-\n", "").replace("\n", " ")


def _kind(state: str) -> str:
    if state.startswith(_LIVES):
        return "state-live"
    return "state-done" if state == "done" else "state-bad"


def _seeds(runs: Sequence[Compared], metric: str) -> str:
    groups, numbers = by_seed(runs), columns(runs, metric)
    if len(groups) == len(runs):
        return ""
    first = [runs[group[0]] for group in groups]
    keys = telling(first, differences(first))[:MOST_KEYS]
    titles = [("over seeds", False), ("runs", True)]
    rows = []
    for group in groups:
        members = [runs[place] for place in group]
        name = told_apart(members[0], keys) or "all runs"
        cells = [_cell(over(column, members), "number") for column in numbers]
        rows.append([_cell(name, "name"), _cell(len(group), "number"), *cells])
    titles += [(_flat(column.title), True) for column in numbers]
    return f'<div class="card"><h2>Mean ± deviation over seeds</h2>{_table(titles, rows)}</div>'


def _scaling(scaling: Sequence[Series]) -> str:
    found = []
    for place, series in enumerate(scaling):
        titles, rows = table_rows(series)
        cells = [[_cell(row[0], "name"), *(_cell(t, "number") for t in row[1:])] for row in rows]
        heads = [(title, place > 0) for place, title in enumerate(titles)]
        about = f'<p class="small">{_text(series.about)}</p>'
        found.append(
            f'<div class="card"><h2>{_text(series.title)}</h2>{about}{_table(heads, cells)}'
            f'<div class="plot" id="scaling-{place}"></div></div>'
        )
    return "".join(found)


def _plots(data: Json, runs: Sequence[Compared]) -> str:
    curves = "".join(
        _card(f"curve-{place}", chart["title"], whole=place == 0)
        for place, chart in enumerate(data["curves"])
    )
    bars = "".join(_card(f"bar-{n}", chart["title"]) for n, chart in enumerate(data["bars"]))
    told = _card("goodput", "Where the time went", whole=True, below=_parts(data, runs))
    parallel = _card("parallel", "Settings and results", whole=True, scroll=True)
    honest = (
        f"Of a curve with more than {2 * buckets(len(runs)):,} points the least and the greatest of"
        f" each of {buckets(len(runs)):,} stretches are drawn. A gap is a value that is not finite."
        " Drag to zoom, double-click to zoom out."
    )
    return f"""<div class="bar"><div class="controls">
<span>over <span class="choice" id="axes"></span></span>
<span>scale <span class="choice" id="scale"></span></span>
<span id="seeds-choice">seeds <span class="choice" id="seeds"></span></span>
</div><div class="legend" id="legend"></div></div>
<div class="charts">{curves}{parallel if data["parallel"] else ""}{bars}
{told if data["goodput"] else ""}</div><p class="small honest">{honest}</p>"""


def _card(name: str, title: str, whole: bool = False, scroll: bool = False, below: str = "") -> str:
    plot = f'<div class="plot" id="{name}"></div>'
    inner = f'<div class="scroll">{plot}</div>' if scroll else plot
    kind = "card whole" if whole else "card"
    return f'<div class="{kind}"><h2>{_text(title)}</h2>{inner}{below}</div>'


def _parts(data: Json, runs: Sequence[Compared]) -> str:
    """The parts in words, for the colours of the bars."""
    told: dict[str, Any] = data["goodput"] or {"parts": {}}
    whole = f"<p>All together: {_text(spent_together(runs))}.</p>"
    items = "".join(
        f'<div><span class="dot part-{part}"></span>{part}: {_text(PARTS[part])}</div>'
        for part in told["parts"]
    )
    return f'<div class="small">{whole}<div class="parts">{items}</div></div>'


def _keys(runs: Sequence[Compared]) -> str:
    keys = differences(runs)
    if not keys or len(runs) < 2:
        return ""
    names = unique_names(runs)
    if len(runs) <= 12:
        titles = [("key", False), *((name, False) for name in names)]
        rows = [
            [_cell(key), *(_cell(shown(run.config.get(key)), "value") for run in runs)]
            for key in keys
        ]
    else:
        titles = [("key", False), ("values", False)]
        rows = [
            [
                _cell(key),
                _cell(", ".join(dict.fromkeys(shown(r.config.get(key)) for r in runs)), "value"),
            ]
            for key in keys
        ]
    inner = _table(titles, rows)
    title = f"What differs ({len(keys)} {'key' if len(keys) == 1 else 'keys'})"
    opened = " open" if len(keys) <= 12 else ""
    return f'<div class="card"><details{opened}><summary>{title}</summary>{inner}</details></div>'
