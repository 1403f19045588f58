"""How busy a node is: its processors, memory, disk, network and the job's GPUs, into a spool.

`python -m ringshard.tracking.system RUN_DIR ATTEMPT NODE` samples beside the ranks until it is
killed with them, or the attempt is over. The step of a sample is the age of the run [s].
"""

import json
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from ringshard.config.schema.hardware import Device
from ringshard.config.schema.reader import read_job
from ringshard.files import is_listed
from ringshard.launch.environment import rank_environment
from ringshard.tracking.gpus import Gpus
from ringshard.tracking.spool import SYSTEM, Spool, node_writer


class Node:
    """This machine, as `agent` and its descendants use it; rates are since the last sample."""

    def __init__(self, folder: Path, agent: int) -> None:
        self._folder, self._agent = folder, agent
        psutil.cpu_percent()  # since when the first sample counts
        self._before, self._since = _counters(), time.monotonic()

    def sample(self) -> dict[str, float]:
        """Metrics by name, with their units in it."""
        memory = psutil.virtual_memory()
        return {
            "cpu_percent": psutil.cpu_percent(),
            "memory_percent": memory.percent,
            "memory_gib": (memory.total - memory.available) / 2**30,
            "job_memory_gib": self._job_bytes() / 2**30,
            "disk_free_gib": shutil.disk_usage(self._folder).free / 2**30,
            **self._rates(),
        }

    def _job_bytes(self) -> int:
        """Resident memory of the job's processes; what they share counts once for each."""
        total = 0
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._agent).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    total += process.memory_info().rss
        return total

    def _rates(self) -> dict[str, float]:
        seconds = max(time.monotonic() - self._since, 1e-3)
        before, self._before, self._since = self._before, _counters(), time.monotonic()
        return {
            f"{name}_mib_per_s": (value - before[name]) / seconds / 2**20
            for name, value in self._before.items()
            if name in before
        }


def _counters() -> dict[str, int]:
    """Bytes since the machine was started; a container may hide some."""
    found: dict[str, int] = {}
    if disk := psutil.disk_io_counters():
        found |= {"disk_read": disk.read_bytes, "disk_written": disk.write_bytes}
    if network := psutil.net_io_counters():
        found |= {"network_received": network.bytes_recv, "network_sent": network.bytes_sent}
    return found


def main() -> None:
    """Sample for the attempt and node named on the command line."""
    os.nice(10)
    run_dir, attempt, node = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    folder = run_dir / "attempts" / str(attempt)
    job = read_job(folder / "job.yaml")
    begun = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))["created"]
    hardware = job.hardware
    ranks = {**os.environ, **rank_environment(hardware)}
    gpus = Gpus(ranks, hardware.processes_per_node) if hardware.device is Device.cuda else None
    machine, writer = Node(run_dir, os.getppid()), node_writer(node)
    spool = Spool(run_dir, attempt, writer)
    while True:
        time.sleep(job.tracking.system_every_s)
        if is_listed(folder / "exit.json"):
            return
        metrics = machine.sample() | (gpus.sample() if gpus else {})
        found = {f"{SYSTEM}{writer}/{name}": value for name, value in metrics.items()}
        spool.log(round(time.time() - begun), found)


if __name__ == "__main__":
    main()
