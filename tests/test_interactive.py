"""Figures with sliders: what the script shows is what the function gives, and the numbers are those of the theory."""

import gzip
import json
from functools import cache
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from bs4 import BeautifulSoup

from attn_lib.interactive import Figure, Slider, View, part1, part2
from attn_lib.interactive.drawing import Panel, ticks
from attn_lib.interactive.marks import Attention, Cells, Level, Line, Points
from attn_lib.problems import MarchenkoPastur, PositionalSemantic, PowerLaw, SingleHead
from attn_lib.theory.error_decomposition import decompose
from attn_lib.theory.positional_semantic import solve as solve_branch
from attn_lib.theory.scaling_regimes import regime
from attn_lib.theory.single_head import solve

DATA = Path(__file__).resolve().parents[1] / "book" / "data"
HEAVIEST = 60_000  # bytes, compressed


@cache
def stored(name):
    return json.loads((DATA / f"{name}.json").read_text())["parts"]


MAKERS = {
    "wells": part1.wells,
    "error": lambda: part2.test_errors(stored("thresholds")),
    "parts": lambda: part2.error_parts(stored("error_decomposition")),
    "regimes": part2.regimes,
}  # those that take less than a few seconds; the pages have all


@cache
def figure(name):
    made = MAKERS[name]()
    return made, made.html()


def panel(*marks, **changed):
    return Panel(**{"title": "t", "x": "x", "y": "y", "xlim": (0, 2), "ylim": (0, 1), "marks": [*marks], **changed})


def parabola(a, b):
    x = np.linspace(0, 2, 5)
    return View([panel(Line(x, a * x**2), Points([b], [0.5]))], {"a": f"{a:g}", "b": f"{b:.1f}"})


def small(**changed):
    sliders = {"a": Slider(label="a", values=(0.1, 0.2)), "b": Slider(label="b", values=(0.5, 1.0, 1.5), start=1)}
    return Figure(**{"name": "small", "title": "Small", "sliders": sliders, "view": parabola, **changed})


def test_identity_frames_are_the_views_in_the_order_of_the_sliders():
    made = small()
    data = made.frames()
    for (a, b), frame, numbers in zip(
        product((0.1, 0.2), (0.5, 1.0, 1.5)), data["frames"], data["numbers"], strict=True
    ):
        (drawn,) = parabola(a, b).panels
        assert [data["marks"][place] for place in frame[0]] == [mark.svg(drawn.at) for mark in drawn.marks]
        assert numbers == [f"{a:g}", f"{b:.1f}"]
    assert len(data["marks"]) == 2 + 3  # each mark once


def test_closed_form_coordinates():
    x, y = panel().at([0, 1, 2], [0, 0.5, 1])
    width, height = x[2], y[0]
    np.testing.assert_allclose(x, [0, width / 2, width])
    np.testing.assert_allclose(y, [height, height / 2, 0], atol=1e-12 * height)
    x, _ = panel(xlim=(0.1, 1000), log="x").at([0.1, 10, 0, 1000], [1, 1, 1, 1])
    np.testing.assert_allclose(x, [0, width / 2, np.nan, width], atol=1e-12 * width)


def test_closed_form_a_line_is_broken_by_nan():
    drawn = ElementTree.fromstring(Line([0, 1, 1, 2, 2], [0, 0, np.nan, 1, 0]).svg(panel().at))
    assert [piece.count("L") for piece in drawn.get("d").split("M")[1:]] == [1, 1]


def test_closed_form_attention_has_its_entries():
    matrix = [[0.9, 0.1], [0.25, 0.75]]
    drawn = ElementTree.fromstring(f"<g>{Attention(matrix).svg(panel().at)}</g>")
    assert [text.text for text in drawn.iter("text")] == ["0.90", "0.10", "0.25", "0.75"]


def test_closed_form_cells_cover_the_map_once():
    values = np.array([[0, 0, 1], [2, 1, 1]])
    drawn = ElementTree.fromstring(Cells([0, 1, 1.5, 2], [0, 0.5, 1], values, ("a", "b", "c")).svg(panel().at))
    areas = [float(r.get("width")) * float(r.get("height")) for r in drawn.iter("rect")]
    width, height = panel().at([2], [0])
    assert len(areas) == 4
    np.testing.assert_allclose(sum(areas), width[0] * height[0])


@pytest.mark.parametrize(
    ("ends", "log", "expected"),
    [
        ((0, 1), False, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ((3, -2), False, [-2, -1, 0, 1, 2, 3]),
        ((0.008, 125), True, [0.01, 0.1, 1, 10, 100]),
    ],
)
def test_closed_form_ticks(ends, log, expected):
    np.testing.assert_allclose(ticks(ends, log), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_identity_figure_is_small_and_complete(name):
    made, html = figure(name)
    assert len(gzip.compress(html.encode())) <= HEAVIEST
    page = BeautifulSoup(html, "html.parser")
    identifiers = [element["id"] for element in page.select("[id]")]
    assert len(set(identifiers)) == len(identifiers)
    assert [label["for"] for label in page.select("label")] == [entry["id"] for entry in page.select("input")]
    assert len(page.select("svg[role=img][aria-label]")) == len(page.select("g.marks")) > 0
    assert all(group.find(True) for group in page.select("g.marks"))  # a still image
    data = json.loads(page.select_one("script").string)
    shape = [len(slider.values) for slider in made.sliders.values()]
    start = np.ravel_multi_index([slider.start for slider in made.sliders.values()], shape)
    cells = [cell.decode_contents() for cell in page.select(".play > table td")]
    assert cells == [BeautifulSoup(text, "html.parser").decode() for text in data["numbers"][start]]
    assert len(page.select("details tbody tr")) == shape[0]
    for svg in page.select(".play-panels > svg"):
        ElementTree.fromstring(svg.decode())


@pytest.mark.parametrize("name", MAKERS)
def test_identity_widget_shows_what_the_page_shows(name):
    made, html = figure(name)
    box = made.widget()
    *_, picture = box.children
    tables = [BeautifulSoup(text, "html.parser").select(".play > table td") for text in (html, picture.value)]
    assert tables[0] == tables[1]
    before, slider = picture.value, box.children[1].children[1]
    slider.value = slider.max
    assert picture.value != before


def test_agrees_with_the_branches():
    view = part1.winner().view(alpha=1.6, omega=0.3)
    for start in ("semantic", "positional"):
        s = solve_branch(PositionalSemantic(alpha=1.6, omega=0.3), start, accuracy=1e-5)
        # both within the accuracy of the figure, twice that for sums of errors
        np.testing.assert_allclose(float(view.numbers[f"train loss, {start}"]), s.train_loss, rtol=2e-3, atol=1e-6)
        np.testing.assert_allclose(float(view.numbers[f"test error, {start}"]), s.test_error, rtol=2e-3, atol=1e-6)
    assert view.numbers["lower minimum"] == "semantic"
    assert part1.winner().view(alpha=0.8, omega=0.3).numbers["lower minimum"] == "positional"


def test_agrees_with_the_solution_of_full_rank():
    target = MarchenkoPastur(kappa0=0.5)
    for lam in (0.01, 0.1):  # stored, and computed
        s = solve(SingleHead(alpha=0.35, lam=lam, Delta=0.5, kappa=1.0, target=target))
        shown = float(figure("error")[0].view(alpha=0.35, lam=lam, Delta=0.5).numbers["test error"])
        np.testing.assert_allclose(shown, s.test_error, rtol=1e-2, atol=1e-4)  # that of the figure


def test_agrees_with_the_learned_spectrum():
    target = PowerLaw(gamma=1.0, d=part2.SPECTRUM_D)
    s = solve(SingleHead(alpha=1.0, lam=0.5, Delta=0.5, kappa=1.0, target=target))
    numbers = part2.spectrum().view(alpha=1.0, lam=0.5, Delta=0.5).numbers
    np.testing.assert_allclose(float(numbers["weight of the zeros"]), 1 - s.rank, rtol=1e-2, atol=1e-4)
    np.testing.assert_allclose(float(numbers["test error"]), s.test_error, rtol=1e-2, atol=1e-4)
    assert part2.spectrum().view(alpha=0.03, lam=2.0, Delta=0.5).numbers["weight of the zeros"] == "1.0000"


def test_agrees_with_the_decomposition():
    alpha, target = 2.0, PowerLaw(gamma=1.5, d=part2.PARTS_D)
    found = decompose(solve(SingleHead(alpha=alpha, lam=0.4 * alpha**0.5, Delta=0.5, kappa=1.0, target=target)))
    numbers = figure("parts")[0].view(alpha=alpha, gamma=1.5).numbers
    for name in ("under", "approx", "mismatch"):
        shown = float(numbers[f"<i>E</i><sub>{name}</sub>"])
        np.testing.assert_allclose(shown, getattr(found, name), rtol=1e-2, atol=1e-6)


def test_agrees_with_the_regimes():
    view = part2.regimes().view
    for n_eff, lam in product((0.1, 10.0, 1000.0), (0.003, 0.1, 3.0)):
        problem = SingleHead(alpha=n_eff / 200, lam=lam, Delta=0.5, kappa=1.0, target=PowerLaw(gamma=1.5, d=200))
        assert view(n_eff=n_eff, lam=lam, gamma=1.5).numbers["regime"] == regime(problem).name


@pytest.mark.parametrize(
    "changed",
    [
        {"values": (1.0,)},
        {"values": (2.0, 1.0)},
        {"values": (1.0, np.nan)},
        {"start": 2},
        {"start": -1},
        {"values": (0.0, 1.0), "log": True},
    ],
)
def test_rejects_a_slider(changed):
    with pytest.raises(ValueError, match="must be"):
        Slider(**{"label": "a", "values": (1.0, 2.0), **changed})


def test_rejects_a_figure():
    with pytest.raises(ValueError, match="name"):
        small(name="a b")
    with pytest.raises(ValueError, match="sliders"):
        small(sliders={})
    with pytest.raises(ValueError, match="axes and labels"):
        small(view=lambda a, b: View([panel(ylim=(0, a))], {})).frames()
    with pytest.raises(ValueError, match="axes and labels"):
        small(view=lambda a, b: View([panel(Level(b))], {f"{b:g}": ""})).frames()


@pytest.mark.parametrize("changed", [{"xlim": (0, 1), "log": "x"}, {"ylim": (1, 1)}, {"xlim": (0, np.inf)}])
def test_rejects_a_panel(changed):
    with pytest.raises(ValueError, match="must be|must have"):
        panel(**changed)
