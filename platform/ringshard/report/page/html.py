"""The page: tables as HTML, numbers as JSON, Plotly and our script beside them in one file."""

import html
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from ringshard.errors import ConfigError
from ringshard.report.compare import Rows, by_key, notes, over_seeds, spent_together, summary
from ringshard.report.compared import Compared
from ringshard.report.goodput import PARTS
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
MOST_RUNS = 12
"""Runs that have a column each in that table."""
MOST_OPEN = 12
"""Rows of it that are shown unasked."""


def _summary(runs: Sequence[Compared], metric: str, data: Json) -> str:
    told = summary(runs, metric, MOST_KEYS)
    titles = [(_flat(title), place > 1) for place, title in enumerate(told.titles)]
    rows = []
    for number, (name, state, *others) in enumerate(told.rows):
        dot = f'<span class="dot" style="background:{data["runs"][number]["color"]}"></span>'
        row = [f'<td class="name">{dot}{_text(name)}</td>', _cell(state, _kind(state))]
        for place, text in enumerate(others, 2):
            row.append(_cell(text, "number best" if (number, place) in told.best else "number"))
        rows.append(row)
    return f'<div class="card">{_table(titles, rows)}</div>'


def _flat(title: str) -> str:
    return title.replace("-\n", "").replace("\n", " ")


def _kind(state: str) -> str:
    if state.startswith(_LIVES):
        return "state-live"
    return "state-done" if state == "done" else "state-bad"


def _seeds(runs: Sequence[Compared], metric: str) -> str:
    told = over_seeds(runs, metric, MOST_KEYS)
    if told is None:
        return ""
    return f'<div class="card"><h2>Mean ± deviation over seeds</h2>{_numbers(told)}</div>'


def _numbers(told: Rows) -> str:
    """Names, and a number in each further column."""
    titles = [(_flat(title), place > 0) for place, title in enumerate(told.titles)]
    rows = [[_cell(row[0], "name"), *(_cell(t, "number") for t in row[1:])] for row in told.rows]
    return _table(titles, rows)


def _scaling(scaling: Sequence[Series]) -> str:
    found = []
    for place, series in enumerate(scaling):
        about = f'<p class="small">{_text(series.about)}</p>'
        found.append(
            f'<div class="card"><h2>{_text(series.title)}</h2>{about}{_numbers(table_rows(series))}'
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
    told = by_key(runs, MOST_RUNS)
    count = len(told.rows)
    if not count or len(runs) < 2:
        return ""
    titles = [(title, False) for title in told.titles]
    rows = [[_cell(row[0]), *(_cell(text, "value") for text in row[1:])] for row in told.rows]
    inner = _table(titles, rows)
    title = f"What differs ({count} {'key' if count == 1 else 'keys'})"
    opened = " open" if count <= MOST_OPEN else ""
    return f'<div class="card"><details{opened}><summary>{title}</summary>{inner}</details></div>'
