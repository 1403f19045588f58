"""One cluster for all tests marked slurm, which is brought back and emptied before each."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm import cluster
from slurm.cluster import Cluster


@pytest.fixture(scope="session")
def _started() -> Iterator[Cluster]:
    if os.getuid() != 0:
        pytest.skip("a Slurm on one machine needs root")
    with cluster.started() as found:
        yield found


@pytest.fixture
def slurm(_started: Cluster) -> Iterator[Cluster]:
    """The cluster, whole and empty."""
    _started.up()
    yield _started
    _started.up()
    _started.slurm("scancel", "-u", "root")
    cluster.until(lambda: not _started.jobs(), 60, "the queue is empty")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder on a file system that all nodes share."""
    return cluster.project(tmp_path)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that every disturbed one has to equal, made on this machine."""
    home = cluster.project(tmp_path_factory.mktemp("undisturbed"))
    done = cluster.train(home, "hardware=cpu_local")
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (home / "outputs/runs").iterdir()
    return run
