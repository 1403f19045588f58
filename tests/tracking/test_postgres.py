"""A hundred runs send to the server of infra/mlflow while it is killed and started again."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tracking.conftest import RunFolder
from tracking.shipped import expected, ship

from ringshard.tracking import delivery, shipper, store

pytestmark = pytest.mark.server

INFRA = Path(__file__).parents[2] / "infra/mlflow"
RUNS, STEPS = 100, 60


class Site:
    """The server of a site, as infra/mlflow/up.sh starts it."""

    def __init__(self, work: Path) -> None:
        self._work = work
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = str(probe.getsockname()[1])
        self.uri = f"http://127.0.0.1:{self._port}"

    def up(self) -> None:
        environment = os.environ | {"MLFLOW_PORT": self._port, "PYTHON": sys.executable}
        done = subprocess.run(
            [str(INFRA / "up.sh"), str(self._work)], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr

    def kill(self) -> None:
        os.killpg(int((self._work / "run/server.pid").read_text()), signal.SIGKILL)

    @property
    def password(self) -> str:
        return (self._work / "etc/password").read_text().strip()

    def down(self) -> None:
        subprocess.run([str(INFRA / "down.sh"), str(self._work), "--purge"], check=True)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    installable = os.getuid() == 0 and shutil.which("apt-get")
    if not (list(Path("/usr/lib/postgresql").glob("*/bin/postgres")) or installable):
        pytest.skip("PostgreSQL is not installed, and only root on Debian can")
    pytest.importorskip("psycopg2")
    pytest.importorskip("flask_wtf")
    with tempfile.TemporaryDirectory(prefix="mlflow-") as folder:
        Path(folder).chmod(0o711)  # PostgreSQL runs as another user
        site = Site(Path(folder) / "site")
        try:
            site.up()
            monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
            monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", site.password)
            yield site
        finally:
            site.down()


def test_runs_that_share_a_server_lose_or_double_points_when_it_is_killed(
    site: Site, tmp_path: Path
) -> None:
    runs = [RunFolder(tmp_path / "runs" / f"tiny-{number}", site.uri) for number in range(RUNS)]
    for run in runs:
        run.attempt(1)
        run.train(1, range(STEPS // 2))

    def follow(run: RunFolder) -> bool:
        tracking = run.job.tracking
        shipping = delivery.Shipper(run.path, 1, tracking.uri, tracking.experiment)
        return shipper.follow(shipping, patience_s=300)

    def train_on() -> None:
        for run in random.sample(runs, RUNS):
            run.train(1, range(STEPS // 2, STEPS))
            run.end(1, "done")

    with ThreadPoolExecutor(RUNS) as pool:
        followed = pool.map(follow, runs)
        while len(list(tmp_path.glob("runs/*/track/shipped.json"))) < RUNS // 4:
            time.sleep(0.05)
        site.kill()
        trainer = threading.Thread(target=train_on)
        trainer.start()
        site.up()
        trainer.join()
        assert all(followed)

    client = store.connect(site.uri)
    home = client.get_experiment_by_name("ringshard").experiment_id
    found = {run.info.run_name: run for run in client.search_runs([home], max_results=2 * RUNS)}
    assert len(client.search_runs([home], max_results=2 * RUNS)) == len(found) == RUNS
    for run in runs:
        there = found[run.path.name].info
        rows = client.get_metric_history(there.run_id, "train/loss")
        assert sorted((row.step, row.value) for row in rows) == expected(STEPS)
        assert there.status == "FINISHED"


def test_a_second_user_sends_nothing_to_an_experiment_that_the_first_one_began(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.server.auth.client import AuthServiceClient  # imports the server

    runs = [RunFolder(tmp_path / "runs" / f"tiny-{number}", site.uri) for number in range(2)]
    for run in runs:
        run.attempt(1)
        run.train(1, range(5))
        run.end(1, "done")
    assert ship(runs[0]) == "FINISHED"
    AuthServiceClient(site.uri).create_user("second", "twelve letters")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "second")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "twelve letters")
    assert ship(runs[1]) == "FINISHED"
