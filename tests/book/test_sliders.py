"""Figures with sliders, moved by keyboard: the page shows what attn_lib gives at the values chosen."""

import json

import pytest
from bs4 import BeautifulSoup
from built import FILES, ROOT

from attn_lib.interactive import part1, part2


def stored(name):
    return json.loads((ROOT / "book" / "data" / f"{name}.json").read_text())["parts"]


FIGURES = {
    "winner": part1.winner,
    "wells": part1.wells,
    "error": lambda: part2.test_errors(stored("thresholds")),
    "spectrum": part2.spectrum,
    "parts": lambda: part2.error_parts(stored("error_decomposition")),
    "regimes": part2.regimes,
}
EACH = [pytest.param(name, marks=pytest.mark.xdist_group(f"slider {name}")) for name in FIGURES]


@pytest.fixture(scope="module", params=EACH)
def shown(request, browser):
    """A figure of attn_lib, its place in the one page that has it, and the page in a browser."""
    (file,) = (file for file in FILES if f'id="play-{request.param}"' in file.read_text())
    page = browser.new_page(viewport={"width": 360, "height": 740})
    page.goto(file.as_uri())
    figure = page.locator(f"#play-{request.param}")
    figure.locator("form").wait_for(state="visible")
    yield FIGURES[request.param](), figure, file
    page.close()


def plain(texts):
    return [BeautifulSoup(text, "html.parser").get_text() for text in texts]


def test_agrees_with_attn_lib_where_the_keyboard_leads(shown):
    made, figure, _ = shown
    values = []
    for i, slider in enumerate(made.sliders.values()):
        control = figure.locator("input").nth(i)
        control.focus()
        control.press("Home")
        control.press("ArrowRight")
        assert (
            figure.locator("output").nth(i).text_content() == control.get_attribute("aria-valuetext") == slider.text(1)
        )
        values.append(slider.values[1])
    view = made.view(**dict(zip(made.sliders, values, strict=True)))
    assert figure.locator("> table th").all_text_contents() == plain(view.numbers)
    assert figure.locator("> table td").all_text_contents() == plain(view.numbers.values())
    groups = figure.locator("g.marks")
    for i, panel in enumerate(view.panels):
        expected = BeautifulSoup("".join(mark.svg(panel.at) for mark in panel.marks), "html.parser")
        drawn = BeautifulSoup(groups.nth(i).inner_html(), "html.parser")
        for shape in ("path", "circle", "rect"):
            assert [e.attrs for e in drawn.select(shape)] == [e.attrs for e in expected.select(shape)]


def test_identity_every_step_changes_what_is_shown(shown):
    made, figure, _ = shown
    for i, slider in enumerate(made.sliders.values()):
        control = figure.locator("input").nth(i)
        control.focus()
        control.press("Home")
        seen = {figure.locator("caption").text_content()}
        for _ in slider.values[1:]:
            control.press("ArrowRight")
            seen.add(figure.locator("caption").text_content())
        assert len(seen) == len(slider.values)
        control.press("ArrowRight")  # the end
        assert figure.locator("caption").text_content() in seen


def test_identity_without_script_there_is_an_image_and_a_table(shown, browser):
    made, figure, file = shown
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    still = page.locator(f"#play-{made.name}")
    assert still.locator("form").is_hidden()
    assert still.locator("noscript").is_visible()
    assert still.locator("g.marks").first.is_visible()
    start = {name: slider.values[slider.start] for name, slider in made.sliders.items()}
    assert still.locator("> table td").all_text_contents() == plain(made.view(**start).numbers.values())
    context.close()
