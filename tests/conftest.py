"""One thread a process: gloo ranks are forked from the test, and forking after threads have run
goes wrong."""

import os
from collections import defaultdict

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["DO_NOT_TRACK"] = "true"

from pathlib import Path

import pytest
from hypothesis import settings
from rotation import todays

# Tests never assert a time: on shared cores an example may take any.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test that is marked `rotated(parts)` a part of its cells runs; those that are marked
    `daily`, and one that is named alone, always."""
    groups = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("rotated") and not item.get_closest_marker("daily"):
            groups[item.nodeid.partition("[")[0]].append(item)
    gone: set[pytest.Item] = set()
    for cells in groups.values():
        marker = cells[0].get_closest_marker("rotated")
        assert marker is not None
        gone |= set(cells) - set(todays(cells, *marker.args))
    if gone:
        config.hook.pytest_deselected(items=list(gone))
        items[:] = [item for item in items if item not in gone]


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes run all the tests; what is chosen by marker or by name, this one."""
    chosen = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    return 0 if chosen or not config.option.markexpr.startswith("not ") else 2


@pytest.fixture(autouse=True)
def fresh_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch keeps what it has compiled by the graph, and knows nothing of changes within our own
    operators."""
    if request.node.get_closest_marker("compile"):
        folder: Path = request.getfixturevalue("tmp_path")
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "kernels"))
