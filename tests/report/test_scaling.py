"""Runs that differ in their processes: efficiency against the smallest, strong and weak."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from report.commands import ringshard
from report.folders import CREATED, made

from ringshard.config.schema.hardware import Device
from ringshard.errors import ConfigError
from ringshard.report.runs import Run, find
from ringshard.report.scaling import scaling


def runs_of(folder: Path, *told: tuple[int, int, float]) -> list[Run]:
    """Of (processes, global batch, tokens/s)."""
    for n, (processes, batch, rate) in enumerate(told):
        fields: dict[str, Any] = {
            "hardware__processes_per_node": processes,
            "train__global_batch": batch,
            "parallelism__dp_shard": processes,
        }
        path = made(folder, f"run-{n}", CREATED + n, **fields)
        spool = path / "track/spool-1.0-rank0.jsonl"
        _speed(path, spool, rate)
    return find([folder])


def _speed(path: Path, spool: Path, rate: float) -> None:
    from ringshard.tracking.spool import Spool, read_spool

    lines = [record for record, _ in read_spool(spool) if record]
    spool.unlink()
    other = Spool(path, 1)
    for line in lines:
        more = {"perf/tokens_per_s": rate} if "perf/tokens_per_s" in line.metrics else {}
        other.log(line.step, line.metrics | more)
    other.close()


def test_efficiency_is_over_another_run_than_the_smallest(tmp_path: Path) -> None:
    told = [(1, 16, 100.0), (2, 16, 180.0), (4, 16, 240.0), (2, 32, 190.0), (4, 64, 360.0)]
    series = {one.title: one for one in scaling(runs_of(tmp_path, *told))}
    strong = series["Strong scaling: global_batch=16"]
    weak = series["Weak scaling"]
    assert [p.processes for p in strong.points] == [1, 2, 4]
    assert [strong.efficiency(p) for p in strong.points] == pytest.approx([1, 0.9, 0.6])
    assert [strong.speedup(p) for p in strong.points] == pytest.approx([1, 1.8, 2.4])
    assert [(p.processes, p.batch) for p in weak.points] == [(1, 16), (2, 32), (4, 64)]
    assert [weak.efficiency(p) for p in weak.points] == pytest.approx([1, 0.95, 0.9])
    assert strong.plot()["ideal"] == pytest.approx([100, 200, 400])


def test_runs_of_unlike_devices_or_settings_are_averaged(tmp_path: Path) -> None:
    """Devices are series of their own; what is chosen for a number of processes is a layout."""
    for n, device in enumerate((Device.cpu, Device.cuda)):
        for processes, compiled, micro in ((1, False, 8), (2, False, 4), (2, True, 4)):
            fields: dict[str, Any] = {
                "hardware__processes_per_node": processes,
                "hardware__device": device,
                "parallelism__dp_shard": processes,
                "parallelism__compile": compiled,
                "train__micro_batch": micro,
            }
            name = f"{device.name}-{processes}-{compiled}"
            path = made(tmp_path, name, CREATED + n, **fields)
            rate = 1000.0**n * (100 + 80 * (processes - 1) + 10 * compiled)
            _speed(path, path / "track/spool-1.0-rank0.jsonl", rate)
    cpu, cuda = [one for one in scaling(find([tmp_path])) if one.title.startswith("Strong")]
    assert (cpu.title, cuda.title) == ("Strong scaling: device=cpu", "Strong scaling: device=cuda")
    assert [(point.layout, round(point.rate)) for point in cpu.points] == [
        ("one process, compile=False, micro_batch=8", 100),
        ("dp_shard 2, compile=False, micro_batch=4", 180),
        ("dp_shard 2, compile=True, micro_batch=4", 190),
    ]
    assert [round(point.rate) for point in cuda.points] == [100_000, 180_000, 190_000]


def test_runs_of_one_topology_scale(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no two of these runs differ in their processes alone"):
        scaling(runs_of(tmp_path, (2, 16, 100.0), (2, 16, 110.0)))


def test_scaling_is_a_traceback_for_what_another_version_wrote(tmp_path: Path) -> None:
    made(tmp_path, "now")
    other = made(tmp_path, "then", CREATED + 1)
    (other / "attempts/1/job.yaml").write_text(yaml.safe_dump({"optimiser": {"lr": 1}, "seed": 3}))
    done = ringshard("compare", tmp_path)
    assert done.returncode == 0 and "then" in done.stdout
    done = ringshard("compare", tmp_path, "--scaling")
    assert done.returncode == 2 and "\n--scaling: no two of these runs" in done.stderr


def test_runs_whose_job_is_not_there_count_as_one_process(tmp_path: Path) -> None:
    """As MLflow tells of them where its files are out of reach."""
    runs = runs_of(tmp_path, (2, 16, 180.0), (4, 16, 240.0), (8, 16, 400.0))
    job = runs[2].dir.attempt(1) / "job.yaml"
    told = yaml.safe_load(job.read_text())
    job.write_text(yaml.safe_dump({key: told[key] for key in told if key != "hardware"}))
    done = ringshard("compare", tmp_path, "--scaling", "--pngs", tmp_path / "pictures")
    assert (done.returncode, done.stderr) == (
        0,
        "run-2 does not tell its processes: left out of --scaling\n",
    )
    assert [file.name for file in (tmp_path / "pictures").glob("scaling-*")] == ["scaling-1.png"]
    (strong,) = scaling(find([tmp_path]))
    assert [point.processes for point in strong.points] == [2, 4]
