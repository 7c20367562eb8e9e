"""The built pages: run `make book` first, then `.venv/bin/python -m pytest tests/book`."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parent.parent.parent
HTML = ROOT / "_build" / "html"
GENERATED = {"genindex.html", "py-modindex.html", "search.html", "index.html", "prf-prf.html"}
FOUND = [*HTML.glob("*.html"), *(HTML / "book").rglob("*.html")]
SOUP = {page: BeautifulSoup(page.read_text(), "html.parser") for page in sorted(FOUND)}
PAGES = [pytest.param(page, id=page.relative_to(HTML).as_posix()) for page in SOUP]


def in_table_of_contents():
    """Files of the chapters, and the root."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return {toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])}


def broken(page, reference):
    """Whether a link or a source of a page points to a file or an anchor of the book that is not there."""
    parts = urlsplit(reference)
    if parts.scheme or parts.netloc:
        return False
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target in SOUP and parts.fragment:
        return SOUP[target].find(attrs={"id": unquote(parts.fragment)}) is None
    return not target.is_file()


def test_identity_pages_are_those_of_the_table_of_contents():
    built = {page.relative_to(HTML).as_posix() for page in SOUP} - GENERATED
    assert built == {f"{name}.html" for name in in_table_of_contents()}


@pytest.mark.parametrize("page", PAGES)
def test_identity_no_cell_failed_or_wrote_to_stderr(page):
    assert SOUP[page].select(".output.traceback, .output.stderr") == []


@pytest.mark.parametrize("page", PAGES)
def test_identity_every_image_has_an_alternative_text(page):
    assert [image["src"] for image in SOUP[page]("img") if not image.get("alt", "").strip()] == []


@pytest.mark.parametrize("page", PAGES)
def test_identity_links_inside_the_book_lead_somewhere(page):
    references = [tag["href"] for tag in SOUP[page]("a", href=True)]
    references += [tag["src"] for tag in SOUP[page](["img", "script"], src=True)]
    assert [reference for reference in references if reference != "#" and broken(page, reference)] == []


@pytest.mark.parametrize("page", PAGES)
def test_identity_nothing_is_loaded_from_elsewhere(page):
    loaded = [tag["src"] for tag in SOUP[page](["script", "img", "iframe"], src=True)]
    loaded += [tag["href"] for tag in SOUP[page]("link", rel=["stylesheet", "preload"], href=True)]
    assert [url for url in loaded if urlsplit(url).netloc] == []
