"""The built pages: run `make book` first, then `.venv/bin/python -m pytest tests/book`."""

import re
from functools import cache
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from bs4 import BeautifulSoup
from built import FILES, HTML, PAGES, ROOT, SETTINGS
from contents import page_names

GENERATED = {"genindex.html", "py-modindex.html", "search.html", "index.html", "prf-prf.html"}
HEAVIEST = 1_500_000  # bytes of a page with its figures, without what all pages share


@cache
def soup(page):
    """The elements of a page."""
    return BeautifulSoup(page.read_text(), "html.parser")


@cache
def anchors(page):
    """What a link can point to inside a page."""
    return set(re.findall(r'<[^>]* id="([^"]+)"', page.read_text()))


def in_table_of_contents():
    """Files of the chapters, and the root."""
    return set(page_names())


def broken(page, reference):
    """Whether a link or a source of a page points to a file or an anchor of the book that is not there."""
    parts = urlsplit(reference)
    if parts.scheme or parts.netloc:
        return False
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target in FILES and parts.fragment:
        return unquote(parts.fragment) not in anchors(target)
    return not target.is_file()


def test_identity_pages_are_those_of_the_table_of_contents():
    built = {page.relative_to(HTML).as_posix() for page in FILES} - GENERATED
    assert built == {f"{name}.html" for name in in_table_of_contents()}


@pytest.mark.parametrize("page", PAGES)
def test_identity_no_cell_failed_or_wrote_to_stderr(page):
    assert soup(page).select(".output.traceback, .output.stderr") == []


@pytest.mark.parametrize("page", PAGES)
def test_identity_checks_of_answers_say_right_in_the_solutions_only(page):
    """A chapter asks once for each answer that can be checked; its solution has the right one."""
    source = (ROOT / page.relative_to(HTML)).with_suffix(".md")
    asked = re.findall(r'^check\("([\w-]+)", answer\)$', source.read_text(), re.MULTILINE) if source.is_file() else []
    lines = [line for output in soup(page).select(".output pre") for line in output.get_text().splitlines()]
    assert sum(line.startswith("No answer yet. Asked for: ") for line in lines) == len(asked)
    assert sum(line.startswith("Right, within ") for line in lines) >= len(asked)
    assert not [line for line in lines if line.startswith("Not yet")]
    assert (len(asked) > 0) == bool(re.match(r"book/part[12]/", page.relative_to(HTML).as_posix()))


@pytest.mark.parametrize("page", PAGES)
def test_identity_every_image_has_an_alternative_text(page):
    assert [image["src"] for image in soup(page)("img") if not image.get("alt", "").strip()] == []


@pytest.mark.parametrize("page", PAGES)
def test_identity_links_inside_the_book_lead_somewhere(page):
    references = [tag["href"] for tag in soup(page)("a", href=True)]
    references += [tag["src"] for tag in soup(page)(["img", "script"], src=True)]
    assert [reference for reference in references if reference != "#" and broken(page, reference)] == []


@pytest.mark.parametrize("page", PAGES)
def test_identity_page_is_light(page):
    figures = {(page.parent / image["src"]).resolve() for image in soup(page)("img")}
    assert page.stat().st_size + sum(figure.stat().st_size for figure in figures) <= HEAVIEST


@pytest.mark.parametrize("page", PAGES)
def test_identity_buttons_lead_to_an_address_that_is_known(page):
    buttons = soup(page).select(".bd-header-article a[href]")
    outside = [tag["href"] for tag in buttons if urlsplit(tag["href"]).netloc]
    known = tuple(filter(None, [SETTINGS["repository"]["url"], "https://mybinder.org/"]))
    assert [address for address in outside if not SETTINGS["repository"]["url"] or not address.startswith(known)] == []


@pytest.mark.parametrize("page", PAGES)
def test_identity_preview_has_title_description_and_picture(page):
    if page.relative_to(HTML).as_posix() in GENERATED:
        return
    preview = {tag["property"]: tag["content"] for tag in soup(page)("meta", property=True)}
    assert preview["og:title"] and preview["og:description"]
    base = SETTINGS["html"]["baseurl"].rstrip("/")
    assert preview["og:image"].startswith(base)
    assert (HTML / preview["og:image"].removeprefix(base).lstrip("/")).is_file()


def chapters():
    """Sources of the pages with cells."""
    sources = [ROOT / f"{name}.md" for name in sorted(in_table_of_contents())]
    return [pytest.param(source, id=source.stem) for source in sources if "kernelspec:" in source.read_text()]


@pytest.mark.parametrize("source", chapters())
def test_identity_chapter_can_be_downloaded_as_notebook_and_script(source):
    page = HTML / source.relative_to(ROOT).with_suffix(".html")
    links = [tag["href"] for tag in soup(page).select(".dropdown-download-buttons a[href]")]
    files = {link.rsplit(".")[-1]: (page.parent / link).resolve() for link in links}
    assert files["md"].read_text() == source.read_text()
    notebook = nbformat.read(files["ipynb"], as_version=4)
    nbformat.validate(notebook)
    code = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) == source.read_text().count("\n```{code-cell}") > 0
    compile(files["py"].read_text(), files["py"].name, "exec")
