"""A part of many cells each day, where all of them take longer than a run of the tests may."""

import datetime
import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def todays(cells: Sequence[T], parts: int) -> Sequence[T]:
    """One part of the cells, the next one tomorrow; all where there would be none, or with
    RINGSHARD_CELLS=all."""
    if os.environ.get("RINGSHARD_CELLS") == "all":
        return cells
    return cells[datetime.date.today().toordinal() % parts :: parts] or cells
