"""Saving 300 MB of a model and AdamW's state: how long training stands still; torch's own saves."""

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ranks import run_ranks
from torch import nn

from ringshard.checkpoint import writer
from ringshard.checkpoint.save import Place, contents, save
from ringshard.checkpoint.saver import Saver
from ringshard.checkpoint.state import TrainState

ROUNDS = 30
WIDTH, LAYERS = 1024, 24


def run() -> list[dict[str, Any]]:
    """One row per way, of rounds in which they take turns: how long training stands still, until
    all is on the disk, and the median ratios of both to our save at once."""
    rounds = run_ranks(1, _rounds, timeout_s=600)[0]
    base = [total for _, total in rounds["ringshard, at once"]]
    return [
        {
            "way": name,
            "stall_s": statistics.median(stall for stall, _ in found),
            "total_s": statistics.median(total for _, total in found),
            "stall_over_at_once": _ratio([stall for stall, _ in found], base),
            "total_over_at_once": _ratio([total for _, total in found], base),
        }
        for name, found in rounds.items()
    ]


def _ratio(own: list[float], base: list[float]) -> float:
    return statistics.median(o / b for o, b in zip(own, base, strict=True))


class _NoDigest:
    def update(self, _: Any) -> None:
        """Nothing."""

    def hexdigest(self) -> str:
        """Nothing."""
        return ""


def _rounds() -> dict[str, list[tuple[float, float]]]:
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, WIDTH)).sum().backward()
    optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        ways = _ways(Path(folder), model, optimizer)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        order, chance = list(ways), random.Random(0)
        for number in range(1 + ROUNDS):
            chance.shuffle(order)  # whoever comes before leaves the disk busy
            for name in order:
                os.sync()
                times = ways[name](number)
                if number:  # the first one warms up
                    found[name].append(times)
    return found


def _ways(
    root: Path, model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Callable[[int], tuple[float, float]]]:
    group = dist.new_group(backend="gloo")
    saver = Saver(Place(root / "beside", keep=1), group)
    held = contents(model, optimizer)

    def at_once(step: int, folder: str = "once") -> None:
        save(Place(root / folder, keep=1), TrainState(step, 0, 0), model, optimizer, group)

    def without_digests(step: int) -> None:
        with patch.object(writer.xxhash, "xxh3_128", _NoDigest):
            at_once(step, "bare")

    def torch_beside(step: int) -> Any:
        return dcp.async_save(
            held, checkpoint_id=root / f"torch-beside-{step % 2}", process_group=group
        )

    return {
        "ringshard, at once": _timed(at_once),
        "ringshard, at once, without digests": _timed(without_digests),
        "ringshard, beside training": _timed(
            lambda step: saver.start(TrainState(step, 0, 0), model, optimizer),
            lambda _: saver.wait(),
        ),
        "dcp.save": _timed(lambda step: dcp.save(held, checkpoint_id=root / f"torch-{step % 2}")),
        "dcp.async_save": _timed(torch_beside, lambda future: future.result()),
    }


def _timed(
    begin: Callable[[int], Any], end: Callable[[Any], Any] = lambda _: None
) -> Callable[[int], tuple[float, float]]:
    def way(step: int) -> tuple[float, float]:
        started = time.perf_counter()
        handle = begin(step)
        stall = time.perf_counter() - started
        end(handle)
        return stall, time.perf_counter() - started

    return way
