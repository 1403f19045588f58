"""docs/config.md is what the schema says."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

from ringshard.config.reference import documented, reference
from ringshard.config.schema.job import Job

CHECKOUT = Path(__file__).resolve().parents[2]


def test_the_page_is_up_to_date() -> None:
    page = (CHECKOUT / "docs" / "config.md").read_text(encoding="utf-8")
    assert page == reference(), "python -m ringshard.config.reference > docs/config.md"


def test_every_field_of_every_group_is_documented() -> None:
    for hint in get_type_hints(Job).values():
        assert is_dataclass(hint)
        assert set(documented(hint)) >= {field.name for field in fields(hint)}, hint
