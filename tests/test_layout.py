"""The source root has the name of a module of Python: it must never become a package."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_source_root_shadows_pythons_platform() -> None:
    assert not (ROOT / "platform/__init__.py").exists()
    code = "import platform; print(platform.system())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "Linux\n", done.stderr


def test_the_namespace_of_hydras_plugins_is_closed() -> None:
    assert not (ROOT / "platform/hydra_plugins/__init__.py").exists()
