"""Own code is found by name, and a wrong name by its neighbours."""

from pathlib import Path

import pytest

from ringshard import child, registry
from ringshard.config.schema.job import User
from ringshard.config.schema.reader import plain
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


BROKEN = {
    "import sys\nsys.exit()": "failed with SystemExit: (broken.py:2, <module>): mend it",
    "def f():\n    return 1 / 0\nf()": "(broken.py:2, f from broken.py:3, <module>): mend it",
    "import nowhere_at_all": "nowhere_at_all",
    "def f(:": "failed with SyntaxError",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_module_that_fails_is_a_traceback_through_the_platform(text: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(text)
    user = plain(User(modules=["broken"], path=str(tmp_path)))
    with pytest.raises(ConfigError) as error:
        child.ask("ringshard.launch.own_code", about=user)
    said = str(error.value)
    assert said.startswith("user.modules") and BROKEN[text] in said and "\n" not in said
