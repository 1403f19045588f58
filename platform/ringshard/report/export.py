"""A comparison for scripts: JSON and CSV, in which NaN and infinity are empty and named."""

import csv
import io
import json
import math
from collections.abc import Sequence
from typing import Any

from ringshard.report.compare import notes
from ringshard.report.compared import Compared, last, mfu, step, tokens_per_s
from ringshard.report.groups import by_seed, differences
from ringshard.strict import strict


def records(runs: Sequence[Compared], metric: str) -> list[dict[str, Any]]:
    """One flat record a run: identity, what differs, numbers, seconds of wall time by part."""
    groups = {place: n for n, group in enumerate(by_seed(runs)) for place in group}
    keys = differences(runs)
    return [_record(run, groups[place], keys, metric) for place, run in enumerate(runs)]


def _record(run: Compared, group: int, keys: Sequence[str], metric: str) -> dict[str, Any]:
    metrics = dict.fromkeys(("train/loss", "val/loss", metric))
    numbers = {key: last(run, key) for key in metrics} | {
        "perf/tokens_per_s": tokens_per_s(run),
        "perf/mfu": mfu(run),
    }
    goodput = run.goodput
    return {
        "run": run.name,
        "place": run.place,
        "state": run.state,
        "step": step(run),
        "group": group,
        **{key: run.config.get(key) for key in keys},
        **{key: value if _is_sound(value) else None for key, value in numbers.items()},
        "not_finite": " ".join(key for key, value in numbers.items() if not _is_sound(value)),
        **({f"goodput/{part}_s": s for part, s in goodput.seconds.items()} if goodput else {}),
    }


def _is_sound(value: float | None) -> bool:
    return value is None or math.isfinite(value)


def as_json(runs: Sequence[Compared], metric: str) -> str:
    """The records, what differs and what is to be known, as one JSON object."""
    told = {
        "differs": differences(runs),
        "notes": notes(runs, metric),
        "runs": records(runs, metric),
    }
    return json.dumps(strict(told), indent=2, ensure_ascii=False, allow_nan=False)


def as_csv(runs: Sequence[Compared], metric: str) -> str:
    """The records as a table; a column that a run does not have is empty."""
    rows = records(runs, metric)
    titles = dict.fromkeys(key for row in rows for key in row)
    out = io.StringIO()
    writer = csv.DictWriter(out, [*titles], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
