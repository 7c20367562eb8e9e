"""The pages of reference as they were built: claims with their downloads, coverage, glossary, citation, modules."""

import base64
import csv
import io
import json
import re
from urllib.parse import unquote

import pytest
import yaml
from bs4 import BeautifulSoup
from built import HTML, ROOT
from contents import page_names

from attn_lib import claims

IDS = [claim.id for claim in claims.all()]


def page(name):
    """A page as a tree."""
    return BeautifulSoup((HTML / "book" / f"{name}.html").read_text(), "html.parser")


def targets(name):
    """Where the links of a page lead."""
    return addresses(page(name))


def addresses(element):
    """Where the links of an element lead."""
    return [unquote(tag["href"]) for tag in element("a", href=True)]


@pytest.fixture(scope="module")
def downloads():
    links = page("claims").select("a[download]")
    return {tag["download"]: base64.b64decode(tag["href"].partition("base64,")[2]).decode() for tag in links}


def test_identity_overview_links_every_claim_once():
    links = [target for target in targets("claims") if target.startswith("#claim-")]
    assert sorted(set(links)) == sorted(f"#claim-{name}" for name in IDS)


def test_identity_downloads_hold_the_claims(downloads):
    records = json.loads(downloads["claims.json"])
    assert [record["id"] for record in records] == IDS
    rows = list(csv.DictReader(io.StringIO(downloads["claims.csv"])))
    assert [(row["id"], row["label"]) for row in rows] == [
        (r["id"], row["label"]) for r in records for row in r["rows"]
    ]
    for record in records:
        assert record["holds"] == all(row["holds"] for row in record["rows"])
        assert record["statement"] and record["source"] and record["tolerance"]


def test_identity_negative_verdicts_are_shown_with_their_reason(downloads):
    text = re.sub(r"\s+", " ", page("claims").get_text())
    failing = [record for record in json.loads(downloads["claims.json"]) if not record["holds"]]
    assert text.count("does not hold:") == len(failing)
    assert all(record["fails_because"] for record in failing)


def test_identity_coverage_links_every_claim():
    links = {target.partition("#")[2] for target in targets("coverage") if target.startswith("claims.html#claim-")}
    assert links == {f"claim-{name}" for name in IDS}


def test_identity_glossary_has_the_terms_that_pages_use():
    anchors = {tag["id"] for tag in page("glossary").select("dt[id]")}
    assert len(anchors) >= 50
    used = {target.partition("#")[2] for target in targets("notation") + targets("part2/learning_curves")}
    assert {name for name in used if name.startswith("term-")} <= anchors


def test_identity_entries_to_cite_are_those_of_the_citation_file():
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    text = re.sub(r"\s+", " ", page("cite").get_text())
    for work in (cff, *cff["references"]):
        assert work["title"] in text
        for person in work["authors"]:
            assert person.get("family-names", person.get("name")) in text


@pytest.fixture(scope="module")
def module_pages():
    """Text of the article of each page of a module, as a tree."""
    names = [name.removeprefix("book/") for name in page_names() if re.match(r"book/reference/\w+/", name)]
    return {name: page(name).select_one("article") for name in names}


def test_identity_overviews_link_every_module_and_say_what_it_has(module_pages):
    listed = []
    for room in dict.fromkeys(name.rpartition("/")[0] for name in module_pages):
        for row in page(room).select("table.autosummary tr"):
            link, summary = row.select("td")
            listed.append(f"reference/{link.a['href'].partition('.html#module-attn_lib.')[0]}")
            assert summary.get_text(strip=True), row
    assert listed == list(module_pages)


def test_identity_page_of_a_module_names_the_chapters_that_use_it(module_pages):
    used = {
        name: {target.removeprefix("../../").removesuffix(".html") for target in addresses(article.p)}
        for name, article in module_pages.items()
    }
    linked = {name: set() for name in module_pages}
    chapters = [name.removeprefix("book/") for name in page_names() if re.match("book/part[12]/", name)]
    for chapter in chapters:
        for target in targets(chapter):
            name = target.partition(".html#")[0].removeprefix("../")
            if name in linked and "#" in target:
                linked[name].add(chapter)
    assert {name: linked[name] - used[name] for name in linked if not linked[name] <= used[name]} == {}
    sources = {chapter: (ROOT / "book" / f"{chapter}.md").read_text() for chapter in chapters}
    for name, found in used.items():
        assert all(re.search(rf"\b{name.rpartition('/')[2]}\b", sources[chapter]) for chapter in found), name


def test_identity_sections_of_docstrings_are_set_as_such(module_pages):
    found = set()
    for name, article in module_pages.items():
        assert not re.search(r"^-{4,}$", article.get_text(), re.MULTILINE), name
        found |= {tag.get_text().strip(":#") for tag in article.select("p.rubric, dl.field-list > dt")}
    assert {"Parameters", "Returns", "Raises", "Accuracy", "Source", "Examples"} <= found
