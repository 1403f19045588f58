"""The page in a real browser: it draws, in both schemes and on a phone, without a complaint."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from report.browser import FOUND, Browser, browser
from report.commands import ringshard
from report.folders import CREATED, made

pytestmark = pytest.mark.browser
EVIL = "<img src=x onerror=document.title='run'>&<b>bold"
_TRACES = (
    "Object.fromEntries([...document.querySelectorAll('.plot')].map(p => [p.id, p.data.length]))"
)
_DRAWN = "[...document.querySelectorAll('.plot')].every(p => p.querySelector('.trace, .bars path'))"


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    if not FOUND:
        pytest.skip("no Chromium: apt-get install chromium")
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rates with three seeds, one that diverged, and one whose name is HTML."""
    folder = tmp_path_factory.mktemp("page")
    make = partial(made, folder / "outputs", steps=3000)
    for seed in (1, 2, 3):
        for lr in (0.1, 0.2):
            fields = {"optimizer__lr": lr, "train__seed": seed, "wiggle": seed / 10}
            make(f"lr{lr}-{seed}", CREATED + seed, **fields)
    make("diverged", CREATED + 8, optimizer__lr=1e30, wiggle=float("nan"))
    make(
        EVIL, CREATED + 9, optimizer__lr=0.4, hardware__processes_per_node=2, train__global_batch=9
    )
    for count in (1, 2, 4):
        make(f"scale-{count}", CREATED + 10 + count, hardware__processes_per_node=count)
    file = folder / "page.html"
    done = ringshard("compare", folder / "outputs", "--html", file, "--scaling")
    assert (done.returncode, done.stderr) == (0, "")
    return file


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_complains_or_draws_nothing(
    tab: Browser, page: Path, width: int, dark: bool
) -> None:
    tab.complaints.clear()
    tab.open(page, width, dark=dark)
    assert tab.complaints == []
    assert tab.ask("document.title") == "outputs"  # no script of a run's name
    traces = tab.ask(_TRACES)
    assert set(traces) >= {"curve-0", "curve-1", "curve-2", "bar-0", "bar-1", "goodput", "parallel"}
    assert min(traces.values()) > 0 and tab.ask(_DRAWN)
    assert tab.ask("document.documentElement.scrollWidth") == width
    assert tab.ask("document.querySelectorAll('img').length") == 0


def test_dark_is_light(tab: Browser, page: Path) -> None:
    """The page follows the scheme, also when it changes while it is shown, and so do the plots."""
    colors = (
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,"
        " document.getElementById('curve-0').layout.font.color]"
    )
    tab.open(page, dark=False)
    light = tab.ask(colors)
    tab.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    tab.settle()
    dark = tab.ask(colors)
    assert all(one != other for one, other in zip(light, dark, strict=True))


def test_a_run_that_is_hidden_stays_in_a_plot(tab: Browser, page: Path) -> None:
    tab.open(page)
    count = tab.ask(_TRACES)
    tab.ask("document.querySelector('#legend button').click()")
    tab.settle()
    less = tab.ask(_TRACES)
    assert (less["curve-0"], less["parallel"]) == (count["curve-0"] - 2, count["parallel"] - 1)
    bars = "document.getElementById('bar-0').data[0].x.length"
    assert tab.ask(bars) == tab.ask("data.runs.length") - 1


def test_an_axis_or_the_mean_over_seeds_is_chosen_in_vain(tab: Browser, page: Path) -> None:
    tab.open(page)
    title = "document.getElementById('curve-0').layout.xaxis.title.text"
    assert tab.ask(title) == "step"
    tab.ask("document.querySelector('#axes [data-value=tokens]').click()")
    tab.settle()
    assert tab.ask(title) == "target tokens"
    names = "document.getElementById('curve-0').data.map(t => t.name ?? '')"
    before = tab.ask(names)
    tab.ask("document.querySelector('#seeds [data-value=mean]').click()")
    tab.settle()
    after = tab.ask(names)
    assert sum("and 2 other seeds" in name for name in after) == 2
    validation = [[name for name in some if "validation" in name] for some in (before, after)]
    assert sorted(validation[0]) == sorted(validation[1]) and validation[0]
    assert sum(" seeds" not in name for name in after if name) == len(before) - 6
