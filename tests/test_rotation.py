"""Cells that rotate: none is left out on all days, and those that must run are not on any."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DAILY = {
    "test_cutting_packed_rows_changes_the_curve": {"cp-2", "cp-4", "fsdp-2-cp-2"},
    "test_cutting_rows_changes_the_curve": {
        f"{rows}-{ring}" for rows in ("ragged", "first-tokens") for ring in ("cp-2", "cp-4")
    },
}
"""Of the curves over a ring."""


def _collected(day: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    told = subprocess.run(
        [*command, "tests/parity/test_cutting.py"],
        cwd=ROOT,
        env=os.environ | {"RINGSHARD_CELLS": day},
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.partition("::")[2] for line in told.stdout.splitlines() if "::" in line}


def test_a_curve_over_a_ring_that_must_be_equal_rotates_out() -> None:
    days = [_collected(str(day)) for day in range(3)]
    for name, cells in DAILY.items():
        assert {f"{name}[{cell}]" for cell in cells} <= set.intersection(*days)
    assert len(set(map(len, days)) | {len(days[0] ^ days[1])}) > 1 and days[0] != days[1]
    assert set.union(*days) == _collected("all"), "some never run"
