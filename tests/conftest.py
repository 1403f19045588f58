"""One thread a process: gloo ranks are forked from the test, and forking after threads have run
goes wrong."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["DO_NOT_TRACK"] = "true"

from pathlib import Path

import pytest
from hypothesis import settings

# Tests never assert a time: on shared cores an example may take any.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(autouse=True)
def fresh_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch keeps what it has compiled by the graph, and knows nothing of changes within our own
    operators."""
    if request.node.get_closest_marker("compile"):
        folder: Path = request.getfixturevalue("tmp_path")
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "kernels"))
