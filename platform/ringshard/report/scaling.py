"""How speed grows with the number of processes: strong scaling shares one batch among more of
them, weak scaling gives each as much as before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from ringshard.config.leaves import under
from ringshard.errors import ConfigError
from ringshard.report.compare import Rows
from ringshard.report.compared import Compared, tokens_per_s
from ringshard.report.goodput import Goodput, total
from ringshard.report.groups import SEEDS, differences, told_apart

_NODES, _EACH = "hardware.nodes", "hardware.processes_per_node"
_DEGREES = ("parallelism.dp_replicate", "parallelism.dp_shard", "parallelism.cp")
_PLACEMENT = ("hardware.scheduler", "hardware.slurm", "hardware.link_gbytes_per_s")
"""Changes no speed: who starts the processes, and what is only believed of their links."""
_LAYOUT = (
    *(_NODES, "hardware.threads_per_process", "hardware.env"),
    *("parallelism", "train.micro_batch"),
)
"""What may be chosen anew for each number of processes: another layout, of the same series."""
_BATCH = "train.global_batch"
_SHOWN = ("training", "data", "checkpoint", "evaluation", "startup")
"""Parts of the wall time that have a column."""


@dataclass(frozen=True)
class Point:
    """Runs of one layout, perhaps with several seeds."""

    processes: int
    layout: str
    batch: int
    """In the unit of the runs."""
    rate: float
    """Mean over the runs [tokens/s]."""
    goodput: Goodput | None


@dataclass(frozen=True)
class Series:
    """Points that may be compared, the smallest first."""

    title: str
    about: str
    points: Sequence[Point]

    def speedup(self, point: Point) -> float:
        """Over the fastest layout of the smallest number of processes."""
        return point.rate / self._base.rate

    def efficiency(self, point: Point) -> float:
        """Speed of a process over its speed there."""
        return self.speedup(point) * self._base.processes / point.processes

    @property
    def _base(self) -> Point:
        least = self.points[0].processes
        return max((p for p in self.points if p.processes == least), key=lambda p: p.rate)

    def plot(self) -> dict[str, Any]:
        """What the page draws: the fastest layout of each number of processes."""
        fastest = {p.processes: p for p in sorted(self.points, key=lambda p: p.rate)}
        points = [fastest[count] for count in sorted(fastest)]
        each = self._base.rate / self._base.processes
        return {
            "devices": [p.processes for p in points],
            "rates": [p.rate for p in points],
            "ideal": [each * p.processes for p in points],
            "texts": [
                f"{p.processes} processes, {p.layout}: {p.rate:,.0f} tokens/s, "
                f"efficiency {self.efficiency(p):.0%}"
                for p in points
            ],
        }


def scaling(runs: Sequence[Compared]) -> list[Series]:
    """All series with two numbers of processes or more; raises ConfigError where there is none."""
    known = [run for run in runs if tells_processes(run)]
    found = [*_series(known, "Strong"), *_series(known, "Weak")]
    if not found:
        counts = sorted({_processes(run) for run in known})
        raise ConfigError(
            f"--scaling: no two of these runs differ in their processes alone ({counts} are there,"
            " and the global batch must be the same, or the same for each process)"
        )
    return found


def _series(runs: Sequence[Compared], kind: str) -> list[Series]:
    left_out = (_EACH, *_PLACEMENT, *_LAYOUT, *SEEDS, *([_BATCH] if kind == "Weak" else []))
    keys = [key for key in differences(runs) if not under(key, left_out)]
    groups: dict[tuple[str, ...], list[Compared]] = {}
    for run in runs:
        if tokens_per_s(run) is None:
            continue
        same = tuple(repr(run.config.get(key)) for key in keys)
        if kind == "Weak":
            same += (f"{_batch(run) / _processes(run):g}",)
        groups.setdefault(same, []).append(run)
    found = []
    for members in groups.values():
        if len({_processes(run) for run in members}) > 1:
            told = _title(kind, members, keys), _about(kind, members)
            found.append(Series(*told, _points(members)))
    return found


def _title(kind: str, members: Sequence[Compared], keys: Sequence[str]) -> str:
    told = told_apart(members[0], keys)
    return f"{kind} scaling" + (f": {told}" if told else "")


def _about(kind: str, members: Sequence[Compared]) -> str:
    unit = members[0].config.get("train.batch_unit", "sequences")
    if kind == "Strong":
        return f"One batch of {_batch(members[0]):,} {unit}, shared by more processes."
    return f"{_batch(members[0]) / _processes(members[0]):g} {unit} a step for each process."


def _points(members: Sequence[Compared]) -> list[Point]:
    keys = [k for k in differences(members) if under(k, _LAYOUT) and k not in _DEGREES]
    layouts: dict[tuple[int, str], list[Compared]] = {}
    for run in members:
        layouts.setdefault((_processes(run), _layout(run, keys)), []).append(run)
    return [
        Point(
            count,
            name,
            _batch(alike[0]),
            mean(rate for run in alike if (rate := tokens_per_s(run)) is not None),
            _together(alike),
        )
        for (count, name), alike in sorted(layouts.items(), key=lambda item: item[0])
    ]


def tells_processes(run: Compared) -> bool:
    """Whether it is known how many processes it has; else it is in no series."""
    return {_NODES, _EACH} <= run.config.keys()


def _together(runs: Sequence[Compared]) -> Goodput | None:
    told = [run.goodput for run in runs if run.goodput]
    return total(told) if told else None


def _whole(config: Mapping[str, object], key: str) -> int:
    return int(str(config.get(key) or 1))


def _processes(run: Compared) -> int:
    return _whole(run.config, _NODES) * _whole(run.config, _EACH)


def _batch(run: Compared) -> int:
    return _whole(run.config, _BATCH)


def _layout(run: Compared, keys: Sequence[str]) -> str:
    """The degrees of the mesh that are not 1, and its values of these keys."""
    degrees = {key.split(".")[-1]: run.config.get(key) for key in _DEGREES}
    mesh = " × ".join(f"{name} {n}" for name, n in degrees.items() if n not in (1, None))
    return ", ".join(text for text in (mesh or "one process", told_apart(run, keys)) if text)


def table_rows(series: Series) -> Rows:
    """A series as text."""
    titles = ["layout", "processes", "batch", "tok/s", "per process", "speed-up", "efficiency"]
    rows = []
    for point in series.points:
        shares = _shares(point.goodput)
        row = [point.layout, str(point.processes), f"{point.batch:,}", f"{point.rate:,.0f}"]
        row += [f"{point.rate / point.processes:,.0f}", f"{series.speedup(point):.2f}"]
        rows.append([*row, f"{series.efficiency(point):.0%}", *shares])
    return Rows([*titles, *_SHOWN, "rest"], rows)


def _shares(goodput: Goodput | None) -> list[str]:
    if goodput is None or not goodput.wall_ms:
        return [""] * (len(_SHOWN) + 1)
    told = [goodput.parts[part] for part in _SHOWN]
    return [f"{ms / goodput.wall_ms:.0%}" for ms in (*told, goodput.wall_ms - sum(told))]
