"""The built pages as a reader meets them: in a browser, without network, on a phone, in the dark, by keyboard."""

from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from built import HTML, PAGES

PHONE, DESKTOP = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
INSPECT = (Path(__file__).parent / "inspect_page.js").read_text()
FORMULAS = "!window.MathJax || MathJax.startup?.promise?.then(() => true)"
CHAPTERS = ["book/home.html", "book/part1/fixed_points.html", "book/part2/spectrum.html", "book/claims.html"]
# Of axe-core: the rules of WCAG 2.1 A and AA, and the order of headings. Contrast is measured here, ten times as fast;
# docutils gives a bibliography roles that axe-core calls deprecated.
RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "cat.semantics"],
    "rules": {
        name: {"enabled": False} for name in ("color-contrast", "aria-deprecated-role", "aria-required-children")
    },
    "resultTypes": ["violations"],
    "preload": False,  # style sheets: only for rules that are not asked for
    "selectors": False,  # not shown, and a third of the time
}


def ask(page, question):
    """Answer of one of the functions in inspect_page.js."""
    return page.evaluate(f"{INSPECT}.{question}()")


def watched_page(browser, viewport=DESKTOP):
    """A page of its own, and where it looks and what goes wrong while it is used."""
    page = browser.new_page(viewport=viewport, color_scheme="light", reduced_motion="reduce")
    seen = SimpleNamespace(page=page, requests=[], errors=[])
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("requestfailed", lambda request: seen.errors.append(f"{request.url}: {request.failure}"))
    page.on("response", lambda answer: answer.status >= 400 and seen.errors.append(f"{answer.url}: {answer.status}"))
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("console", lambda message: message.type == "error" and seen.errors.append(message.text))
    return seen


def open_page(browser, address):
    """A page with its formulas set."""
    seen = watched_page(browser)
    seen.page.goto(address)
    seen.page.wait_for_function(FORMULAS)
    return seen


@pytest.fixture(scope="session")
def phone(browser):
    """A page at the width of a phone, for one address after the other: scripts are read once."""
    seen = watched_page(browser, PHONE)
    yield seen
    seen.page.close()


@pytest.fixture(scope="module", params=[page for page in PAGES if page.id != "index.html"])
def opened(request, phone):
    """Each page, opened once from the disk at the width of a phone."""
    phone.requests.clear()
    phone.errors.clear()
    phone.page.set_viewport_size(PHONE)
    phone.page.goto(request.param.as_uri())
    phone.page.wait_for_function(FORMULAS)
    return phone


def test_identity_page_loads_nothing_from_elsewhere_and_without_error(opened):
    assert [url for url in opened.requests if not url.startswith((HTML.as_uri(), "data:"))] == []
    assert opened.errors == []


def test_identity_formulas_are_set(opened):
    formulas = ask(opened.page, "notRendered")
    assert formulas["missing"] == []
    # Sphinx also loads MathJax where only the pages below a page, which are in a folder of its name, have formulas.
    below = Path(unquote(urlsplit(opened.page.url).path)).with_suffix("").glob("*.html")
    needed = formulas["rendered"] > 0 or any("math notranslate" in page.read_text() for page in below)
    assert ("MathJax" in opened.page.content()) == needed


def test_identity_page_fits_on_a_phone(opened):
    assert ask(opened.page, "tooWide") == []


def test_identity_page_is_accessible(opened):
    # Without the formulas, tested before, and at the width at which the page was opened.
    opened.page.evaluate("document.querySelectorAll('mjx-container').forEach(formula => formula.remove())")
    opened.page.evaluate(AXE_SCRIPT)
    violations = opened.page.evaluate("rules => axe.run(rules)", RULES)["violations"]
    assert {rule["id"]: [node["html"][:200] for node in rule["nodes"]] for rule in violations} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_identity_text_is_legible(opened, theme):
    opened.page.set_viewport_size(DESKTOP)
    opened.page.evaluate(
        "theme => { document.documentElement.dataset.theme = theme;"
        " document.querySelectorAll('details').forEach(folded => folded.open = true);"
        " document.querySelectorAll('.toggle-hidden').forEach(folded => folded.classList.remove('toggle-hidden')) }",
        theme,
    )
    assert ask(opened.page, "lowContrast") == {}


@pytest.mark.parametrize("name", CHAPTERS)
def test_identity_page_is_the_same_from_a_web_server(browser, server, name):
    seen = open_page(browser, f"{server}/{name}")
    assert [url for url in seen.requests if not url.startswith((server, "data:"))] == []
    assert seen.errors == []
    assert ask(seen.page, "notRendered")["missing"] == []
    seen.page.close()


def test_identity_root_leads_to_the_home_page(browser, site):
    page = browser.new_page()
    page.goto(f"{site}/index.html")
    page.wait_for_url(f"{site}/book/home.html")
    assert page.locator("h1").first.text_content().startswith("Attention, solved")
    page.close()


def test_identity_search_finds_a_word_and_not_another(browser, site):
    page = open_page(browser, f"{site}/book/home.html").page
    page.keyboard.press("Control+k")
    page.keyboard.type("semicircle")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results ul.search a")
    page.wait_for_function("document.querySelector('#search-results .search-summary').textContent.includes('found')")
    assert page.locator("#search-results ul.search a[href*='spectrum']").count() > 0
    page.goto(f"{site}/search.html?q=zyzzyva")
    page.wait_for_function("document.querySelector('.search-summary').textContent.includes('did not match')")
    assert page.locator("#search-results ul.search a").count() == 0
    page.close()


def test_identity_dark_theme_is_chosen_and_remembered(browser, site):
    page = open_page(browser, f"{site}/book/home.html").page
    brightness = "Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3))"
    page.wait_for_function(f"{brightness} > 200")
    for _ in range(3):  # automatic, light, dark
        if page.evaluate("document.documentElement.dataset.mode") != "dark":
            page.locator(".theme-switch-button:visible").first.click()
    page.wait_for_function(f"{brightness} < 60")
    page.goto(f"{site}/{CHAPTERS[1]}")
    page.wait_for_function(f"{brightness} < 60")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.close()


def test_identity_focus_is_seen(browser):
    page = open_page(browser, (HTML / CHAPTERS[1]).as_uri()).page
    stops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        stops.append(ask(page, "focus"))
    assert [stop["where"] for stop in stops if not stop["visible"]] == []
    assert len({stop["where"] for stop in stops}) > 40
    page.close()


def test_identity_print_has_the_text_only_and_in_full(browser):
    page = open_page(browser, (HTML / CHAPTERS[2]).as_uri()).page
    page.emulate_media(media="print")
    for hidden in (".bd-sidebar-primary", ".bd-header-article", ".prev-next-area", ".toggle-button"):
        assert page.locator(f"{hidden}:visible").count() == 0
    page.set_viewport_size({"width": 720, "height": 1000})  # A4 at 96 dots per inch, less the margins
    assert ask(page, "tooWide") == []
    assert page.locator("h1:visible").count() == 1
    page.close()
