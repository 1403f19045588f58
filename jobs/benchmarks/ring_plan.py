"""Time to plan a ring's work on the host, once a batch: 5,000 documents in a million tokens.

CPU milliseconds, the median of nine; linear work takes four times those of a quarter of it.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ringshard.parallel.ring.documents import Ints
from ringshard.parallel.ring.layout import LAYOUTS
from ringshard.parallel.ring.plan import build_plan, predict_work

TOKENS, DOCUMENTS = 1 << 20, 5000
ROUNDS = 9


def run() -> list[dict[str, Any]]:
    """One row per layout and number of ranks."""
    return [_row(layout, ranks) for layout in ("zigzag", "balanced") for ranks in (8, 64)]


def _row(layout: str, ranks: int) -> dict[str, Any]:
    whole, quarter = (_measured(layout, ranks, part) for part in (1, 4))
    return {
        "layout": layout,
        "ranks": ranks,
        "documents": DOCUMENTS,
        **whole,
        "all_over_a_quarter": whole["all_ms"] / quarter["all_ms"],
    }


def _measured(layout: str, ranks: int, part: int) -> dict[str, Any]:
    rows = [documents(TOKENS // part, DOCUMENTS // part)]
    cut = LAYOUTS[layout](rows, ranks)
    planned = build_plan(cut, rows, ranks // 2)
    steps = {
        "layout_ms": lambda: LAYOUTS[layout](rows, ranks),
        "work_ms": lambda: predict_work(cut, rows),
        "plan_ms": lambda: build_plan(cut, rows, ranks // 2),
    }
    found = {name: _median_ms(step) for name, step in steps.items()}
    return {"segments": len(planned.table), **found, "all_ms": sum(found.values())}


def documents(tokens: int, count: int) -> Ints:
    """Bounds of `count` documents of lognormal lengths that fill `tokens`."""
    sizes = np.random.default_rng(0).lognormal(0.0, 1.0, count)
    ends = np.cumsum(1 + sizes / sizes.sum() * (tokens - count)).astype(np.int64)
    ends[-1] = tokens
    return np.concatenate([[0], ends])


def _median_ms(step: Callable[[], Any]) -> float:
    found = []
    for _ in range(ROUNDS):
        started = time.process_time()
        step()
        found.append(1e3 * (time.process_time() - started))
    return float(np.median(found))


if __name__ == "__main__":
    for row in run():
        print(row)
