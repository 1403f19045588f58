"""The page of a comparison: whole in one file, and true to the runs."""

import base64
import json
import re
import struct
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report.commands import ringshard
from report.folders import CREATED, made

from ringshard.errors import ConfigError
from ringshard.report.page import html
from ringshard.report.page.colors import colors
from ringshard.report.page.payload import payload
from ringshard.report.runs import Run, find

EVIL = "<img src=x onerror=alert(1)>&amp;<b>bold"


def numbers(packed: str) -> list[float]:
    kind, _, text = packed.partition(":")
    data = base64.b64decode(text)
    size = {"f4": 4, "f8": 8}[kind]
    return list(struct.unpack(f"<{len(data) // size}{'f' if size == 4 else 'd'}", data))


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Two rates, two seeds, and a run with a name that is HTML."""
    make = partial(made, tmp_path / "outputs")
    for seed in (1, 2):
        for lr in (0.1, 0.2):
            make(f"lr{lr}-{seed}", CREATED + seed, optimizer__lr=lr, train__seed=seed)
    make(EVIL.replace("/", ""), CREATED + 9, optimizer__lr=0.4, wiggle=float("inf"))
    return find([tmp_path / "outputs"])


def test_a_page_needs_a_network_or_runs_the_name_of_a_run(runs: list[Run], tmp_path: Path) -> None:
    done = ringshard("compare", tmp_path / "outputs", "--html", tmp_path / "a.html")
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / "a.html").read_text()
    ours = text.replace(html.require_plotly(), "")
    assert "<img" not in ours and not re.search(r"<\w+[^<>]*\s(src|href)\s*=", ours)
    assert "default-src 'none'" in ours and "http:" not in ours and "https:" not in ours
    embedded = re.search(r'<script type="application/json" id="data">(.*?)</script>', ours, re.S)
    assert embedded is not None
    data = json.loads(embedded[1])
    assert data["runs"][-1]["folder"] == EVIL.replace("/", "")
    assert html._text(EVIL) in ours


@pytest.mark.parametrize("axis", ["step", "tokens", "time", "flops"])
def test_a_curve_on_the_page_is_another_than_the_runs(axis: str, runs: list[Run]) -> None:
    data = payload(runs, "train/loss", axis)
    (loss,) = (chart for chart in data["curves"] if chart["id"] == "train/loss")
    steps = np.arange(1, 21)
    where = {"step": steps, "tokens": 512 * steps, "time": (steps + 5) / 3600, "flops": 1e9 * steps}
    for run, line, dots in zip(runs[:4], loss["lines"], loss["dots"], strict=False):
        lr = float(str(run.config["optimizer.lr"]))
        assert numbers(line["x"][axis]) == pytest.approx(where[axis])
        assert numbers(line["y"]) == pytest.approx(5 / (1 + lr * steps))
        assert numbers(dots["y"]) == pytest.approx(5.1 / (1 + lr * np.array([10, 20])))
    assert np.isnan(numbers(loss["lines"][4]["y"])).all()  # infinite: a gap
    groups = {tuple(group["runs"]) for group in loss["seeds"]}
    assert groups == {(0, 1), (2, 3)} or groups == {(0, 2), (1, 3)}


def test_a_run_has_another_color_in_another_plot_or_shares_one() -> None:
    for count in (1, 2, 10, 11, 50):
        painted = colors(count)
        assert len(set(painted)) == count
        assert all(re.fullmatch("#[0-9a-f]{6}", color) for color in painted)


def test_settings_that_are_words_have_no_place_on_an_axis(tmp_path: Path) -> None:
    for n, optimizer in enumerate(("adamw", "muon", "lion")):
        made(tmp_path, f"run-{n}", CREATED + n, optimizer__name=optimizer)
    (told,) = settings(find([tmp_path]))
    assert told["title"] == "optimizer.name"
    assert told["places"] == [0, 1, 0.5]  # adamw, lion, muon
    assert told["texts"] == ["adamw", "muon", "lion"]


def test_a_setting_that_is_none_is_a_number_on_an_axis(tmp_path: Path) -> None:
    for n, warmup in enumerate((None, 10, 1000)):
        made(tmp_path, f"run-{n}", CREATED + n, schedule__warmup_steps=warmup)
    (told,) = settings(find([tmp_path]))
    assert told["title"] == "schedule.warmup_steps"
    assert told["places"] == [None, 0, 1]
    assert told["texts"] == ["none", "10", "1000"]


def settings(runs: list[Run]) -> list[dict[str, Any]]:
    """The axes that are no results."""
    dimensions = payload(runs, "train/loss", "step")["parallel"]["dimensions"]
    return [one for one in dimensions if "." in one["title"]]


def test_time_of_runs_that_tell_none_has_an_empty_plot(tmp_path: Path) -> None:
    run = made(tmp_path, "run")
    (run / "attempts/1/started.json").unlink()
    assert payload(find([tmp_path]), "train/loss", "step")["goodput"] is None


def test_a_missing_package_is_a_traceback(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ConfigError, match=re.escape("pip install 'ringshard[report]'")):
        html.page(runs, "train/loss", "step", "title")
