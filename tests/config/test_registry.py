"""Own code is found by name, and a wrong name by its neighbours."""

from pathlib import Path

import pytest

from ringshard import registry
from ringshard.config.schema.job import User
from ringshard.errors import ConfigError


def test_a_module_of_the_user_registers_by_being_imported(tmp_path: Path) -> None:
    (tmp_path / "own_thing.py").write_text(
        "from ringshard.registry import register\n"
        "@register('hook', 'own_hook')\n"
        "def make():\n    return 'made'\n"
    )
    registry.import_user_modules(User(modules=["own_thing"], path=str(tmp_path)))
    assert registry.lookup("hook", "own_hook")() == "made"
    with pytest.raises(ConfigError, match=r"own_hok is not registered .*own_hook"):
        registry.lookup("hook", "own_hok")


def test_a_name_is_given_once() -> None:
    registry.register("hook", "twice")(lambda: 1)
    with pytest.raises(ConfigError, match="registered twice"):
        registry.register("hook", "twice")(_other)


def _other() -> int:
    return 2


def test_a_missing_module_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere cannot be imported"):
        registry.import_user_modules(User(modules=["nowhere"], path=str(tmp_path)))
