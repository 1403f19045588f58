"""docs/config.md is what the schema says."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest

from ringshard.config.leaves import leaves
from ringshard.config.reference import SCHEMAS, documented, reference

CHECKOUT = Path(__file__).resolve().parents[2]


def test_the_page_is_up_to_date() -> None:
    page = (CHECKOUT / "docs" / "config.md").read_text(encoding="utf-8")
    assert page == reference(), "python -m ringshard.config.reference > docs/config.md"


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_field_of_every_group_of_every_job_is_documented(name: str) -> None:
    for key, hint in get_type_hints(SCHEMAS[name]).items():
        if is_dataclass(hint):
            assert set(documented(hint)) >= {field.name for field in fields(hint)}, hint
        else:
            assert documented(SCHEMAS[name])[key]
    page = reference()
    for key in leaves(SCHEMAS[name]()):
        assert f"`{key}`" in page
