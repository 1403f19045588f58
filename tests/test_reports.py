"""docs/reports.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_test_that_answers_a_report_is_gone() -> None:
    page = (ROOT / "docs/reports.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", page)
    assert named
    gone = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.M)
    ]
    assert not gone


def test_a_report_is_answered_by_a_whole_file() -> None:
    page = (ROOT / "docs/reports.md").read_text(encoding="utf-8")
    assert not re.findall(r"`tests/[\w/]+(?:\.py)?`", page)
