"""The pages of reference as they were built: claims with their downloads, coverage, glossary, citation."""

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

from attn_lib import claims

IDS = [claim.id for claim in claims.all()]


def page(name):
    """A page as a tree."""
    return BeautifulSoup((HTML / "book" / f"{name}.html").read_text(), "html.parser")


def targets(name):
    """Where the links of a page lead."""
    return [unquote(tag["href"]) for tag in page(name)("a", href=True)]


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
