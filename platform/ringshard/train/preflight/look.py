"""Links, versions, clocks and the shared file system of the processes of a job."""

import platform
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch import Tensor

from ringshard import child
from ringshard.config.schema.hardware import Hardware, Scheduler
from ringshard.config.schema.job import Job
from ringshard.config.schema.parallelism import Parallelism
from ringshard.config.schema.preflight import Messages
from ringshard.config.schema.tracking import Tracking
from ringshard.errors import ConfigError
from ringshard.files import is_listed
from ringshard.parallel import mesh as meshes
from ringshard.train.attempt import Attempt

_MOST_SKEW_S = 1.0
_MOST_DELAY_S = 5.0


@dataclass(frozen=True)
class Link:
    """Processes that speak over one kind of link."""

    name: str
    """As in hardware.link_gbytes_per_s: node, network; all: over both."""
    size: int
    group: dist.ProcessGroup


def look(job: Job, messages: Messages, tracking: Tracking, attempt: Attempt) -> None:
    """Measures, and leaves the result (rank 0)."""
    mesh = meshes.start(job.hardware, Parallelism())
    rows = [
        _row(link, name, mib, messages.seconds, mesh.device)
        for link in links(job.hardware)
        for name in _COLLECTIVES
        for mib in messages.sizes_mib
    ]
    facts, problems = _versions(mesh.world_size, mesh.device)
    skew, delay = _skew_s(mesh.world_size), _delay_s(attempt, mesh.world_size)
    facts |= {"clocks": f"differ by {skew * 1e3:.1f} ms at most"}
    facts |= {"disk": f"a file of one node is seen by all after {delay * 1e3:.0f} ms"}
    if skew > _MOST_SKEW_S:
        problems.append(f"clocks differ by {skew:.1f} s: run an NTP client on the nodes")
    if delay > _MOST_DELAY_S:
        problems.append(f"files of one node take {delay:.1f} s to be seen by the others")
    if mesh.is_first:
        told, warnings = _tracking(tracking, job.hardware)
        result = {"outcome": "finished", "links": rows, "facts": facts | told}
        result |= {"problems": problems, "warnings": warnings}
        attempt.record_result(result)
    dist.barrier(mesh.cpu_group)
    dist.destroy_process_group()


def links(hardware: Hardware) -> list[Link]:
    """Those of a node, those between nodes (equal places of all), and all processes together."""
    nodes, per_node = hardware.nodes, hardware.processes_per_node
    ranks = torch.arange(nodes * per_node).view(nodes, per_node)
    shapes = {
        "node": ranks.tolist(),
        "network": ranks.T.tolist(),
        "all": [ranks.flatten().tolist()],
    }
    found = []
    for name, rows in shapes.items():
        if len(rows[0]) == 1 or (name == "all" and 1 in (nodes, per_node)):
            continue
        group, _ = dist.new_subgroups_by_enumeration(rows)  # type: ignore[no-untyped-call]
        found.append(Link(name, len(rows[0]), group))
    return found


def _all_reduce(link: Link, tensor: Tensor) -> float:
    """Bytes that each process of a ring sends in an all-reduce of `tensor`."""
    dist.all_reduce(tensor, group=link.group)
    return 2 * (link.size - 1) / link.size * tensor.nbytes


def _all_gather(link: Link, tensor: Tensor) -> float:
    """The same where `tensor` is what all have gathered."""
    part = tensor[: tensor.numel() // link.size]
    dist.all_gather_into_tensor(tensor[: part.numel() * link.size], part.clone(), link.group)
    return (link.size - 1) / link.size * tensor.nbytes


_COLLECTIVES: dict[str, Callable[[Link, Tensor], float]] = {
    "all-gather": _all_gather,
    "all-reduce": _all_reduce,
}


def _row(link: Link, name: str, mib: float, seconds: float, device: torch.device) -> dict[str, Any]:
    """Mean time of a collective while all groups of the link speak at once, the slowest rank's."""
    tensor = torch.ones(max(link.size, round(mib * 2**20 / 4)), device=device)
    collective = _COLLECTIVES[name]
    sent = collective(link, tensor)
    count = _count(seconds, lambda: collective(link, tensor), device)
    began = time.perf_counter()
    for _ in range(count):
        collective(link, tensor)
    _wait(device)
    took = torch.tensor([(time.perf_counter() - began) / count], device=device)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    mean = took.item()
    row = {"link": link.name, "processes": link.size, "collective": name, "mib": mib}
    return row | {"seconds": mean, "gbytes_per_s": sent / mean / 1e9}


def _count(seconds: float, call: Callable[[], object], device: torch.device) -> int:
    """How many calls fill the time, the same number on all ranks."""
    _wait(device)
    began = time.perf_counter()
    call()
    _wait(device)
    count = torch.tensor([seconds / (time.perf_counter() - began)], device=device)
    dist.all_reduce(count, dist.ReduceOp.MIN)
    return max(1, min(10_000, int(count.item())))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _versions(world_size: int, device: torch.device) -> tuple[dict[str, str], list[str]]:
    """What runs on the nodes, and where they differ."""
    own = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "kernel": platform.release(),
    }
    if device.type == "cuda":
        own |= {"cuda": str(torch.version.cuda), "gpu": torch.cuda.get_device_name(device)}
        nccl = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
        own |= {"nccl": ".".join(map(str, nccl))}
    told: list[Any] = [None] * world_size
    dist.all_gather_object(told, own | {"host": socket.gethostname()})
    facts = own | {"nodes": ", ".join(sorted({one["host"] for one in told}))}
    problems = [
        f"{name} differs: " + ", ".join(sorted({f"{one['host']} {one.get(name)}" for one in told}))
        for name in own
        if len({one.get(name) for one in told}) > 1
    ]
    return facts, problems


def _tracking(tracking: Tracking, hardware: Hardware) -> tuple[dict[str, str], list[str]]:
    """Whether MLflow takes runs from the first node; training needs none of it."""
    if not tracking.backend.ships:
        return {}, []
    if hardware.scheduler is Scheduler.slurm and tracking.ships_to_file:
        return {"tracking": "a file, which no node opens: track sync on the submit host"}, []
    try:
        child.ask("ringshard.tracking.reach", tracking.uri, tracking.experiment)
    except (ConfigError, child.ChildError) as error:
        return {}, [f"tracking: {error}"]
    return {"tracking": f"{tracking.uri} takes runs"}, []


def _skew_s(world_size: int) -> float:
    """How far the clocks are apart; the time of a barrier is in it."""
    dist.barrier()
    told: list[Any] = [None] * world_size
    dist.all_gather_object(told, time.time())
    return float(max(told) - min(told))


def _delay_s(attempt: Attempt, world_size: int) -> float:
    """How long a file takes to be seen by every rank."""
    file = attempt.folder / "seen"
    dist.barrier()
    if attempt.rank == 0:
        file.write_text("here")
    dist.barrier()
    delays: list[Any] = [None] * world_size
    dist.all_gather_object(delays, _until_seen(file))
    return float(max(delays))


def _until_seen(file: Path, patience_s: float = 60.0) -> float:
    began = time.perf_counter()
    while not is_listed(file) and time.perf_counter() - began < patience_s:
        time.sleep(0.01)
    return time.perf_counter() - began
