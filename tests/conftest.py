"""One thread a process: gloo ranks are forked from the test, and forking after threads have run
goes wrong."""

import datetime
import os
from collections import defaultdict

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["DO_NOT_TRACK"] = "true"

from pathlib import Path

import pytest
from hypothesis import settings

# Tests never assert a time: on shared cores an example may take any.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test that is marked `rotated(parts)` one part of the cells runs today, the next one
    tomorrow, and one that is named always; with RINGSHARD_CELLS=all all do."""
    if os.environ.get("RINGSHARD_CELLS") == "all":
        return
    day, cells = datetime.date.today().toordinal(), defaultdict[str, list[pytest.Item]](list)
    for item in items:
        cells[item.nodeid.partition("[")[0]].append(item)
    left_out: list[pytest.Item] = []
    for group in cells.values():
        if (marker := group[0].get_closest_marker("rotated")) and len(group) > 1:
            parts = marker.args[0]
            left_out += [cell for place, cell in enumerate(group) if (place - day) % parts]
    if gone := set(left_out):
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture(autouse=True)
def fresh_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch keeps what it has compiled by the graph, and knows nothing of changes within our own
    operators."""
    if request.node.get_closest_marker("compile"):
        folder: Path = request.getfixturevalue("tmp_path")
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "kernels"))
