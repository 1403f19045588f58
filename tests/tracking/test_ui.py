"""`ringshard track ui`: MLflow's page on an output root, with few processes and none left over."""

import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tracking.server import await_answer

pytestmark = pytest.mark.server


def test_the_page_takes_ten_processes_or_leaves_some(database: Path, tmp_path: Path) -> None:
    shutil.copy(database, tmp_path / "mlflow.db")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "ringshard.cli", "track", "ui", "--port", str(port)]
    ui = subprocess.Popen([*command, "--root", str(tmp_path)])
    try:
        await_answer(port, ui)
    finally:
        below = psutil.Process(ui.pid).children(recursive=True)
        ui.terminate()
        _, left = psutil.wait_procs(below, timeout=30)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        ui.wait(30)
    assert len(below) <= 2 and not left, (below, left)
