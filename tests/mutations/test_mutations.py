"""A test that cannot fail proves nothing: each planted bug must make an assertion of its test fail.

The bug is planted in a copy of the tree, whose packages come first on the path.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from mutations import (
    planted,
    planted_checkpoint,
    planted_optim,
    planted_report,
    planted_ring,
    planted_slurm,
    planted_tracking,
)
from mutations.planted import Bug
from mutations.planted_outside import OUTSIDE
from rotation import todays

BUGS = [
    *planted.BUGS,
    *planted_checkpoint.BUGS,
    *planted_optim.BUGS,
    *planted_report.BUGS,
    *planted_ring.BUGS,
    *planted_slurm.BUGS,
    *planted_tracking.BUGS,
]
ROOT = Path(__file__).parents[2]
ALL = [*BUGS, *OUTSIDE]


def _todays(bugs: list[Bug]) -> list[Bug]:
    """A third of the bugs of each package, for each takes ten seconds."""
    rooms = defaultdict[Path, list[Bug]](list)
    for bug in bugs:
        rooms[Path(bug.file).parent].append(bug)
    return [bug for room in rooms.values() for bug in todays(room, 3)]


@pytest.mark.mutations
@pytest.mark.parametrize("bug", _todays(ALL), ids=lambda bug: bug.name.replace(" ", "-"))
def test_a_planted_bug_goes_unnoticed(bug: Bug, tmp_path: Path) -> None:
    tree = _copy(tmp_path / "tree")
    _plant(bug, tree)
    run = _pytest(bug.test, tree)
    # 1: tests were collected and run, and some failed; any other code is an error of ours.
    assert run.returncode == 1, run.stdout[-3000:] + run.stderr[-1000:]
    assert re.match(r"1 failed(, \d+ warnings?)? in ", run.stdout.splitlines()[-1]), run.stdout
    # A bug that merely crashes, such as a misspelt one, proves nothing of what the test compares.
    assert re.search(r"^(E +| +\| )(assert|AssertionError)\b", run.stdout, re.MULTILINE), run.stdout


def test_a_bug_is_planted_where_nothing_is() -> None:
    for bug in ALL:
        text = (ROOT / bug.file).read_text()
        assert text.count(bug.right) == 1, f"{bug.name}: {text.count(bug.right)} places"


def _copy(tree: Path) -> Path:
    for part in ("platform", "tests", "jobs", "conf"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    return tree


def _plant(bug: Bug, tree: Path) -> None:
    file = tree / bug.file
    text = file.read_text()
    assert text.count(bug.right) == 1
    file.write_text(text.replace(bug.right, bug.wrong))


def _pytest(test: str, tree: Path) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": str(tree / "platform")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
