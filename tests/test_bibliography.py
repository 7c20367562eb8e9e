"""The sources of bibliography and citation: forms of identifiers, nothing cited that is not there, nothing unused."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
ENTRIES = {
    key: dict(re.findall(r"^  (\w+) = \{(.*)\},?$", body, re.MULTILINE))
    for key, body in re.findall(r"^@\w+\{(\w+),\n(.*?)^\}", (ROOT / "book/references.bib").read_text(), re.M | re.S)
}
PAGES = {path: path.read_text() for path in sorted((ROOT / "book").rglob("*.md"))}
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def arxiv_number(text):
    """The number of a preprint in a string, or None; it has five digits since 2015, four before."""
    found = re.search(r"(?:arxiv\.org/abs/|arXiv:)((\d\d)(?:0[1-9]|1[0-2])\.(\d+))", text)
    return found[1] if found and len(found[3]) == (5 if int(found[2]) >= 15 else 4) else None


def test_identity_every_entry_is_cited_and_every_citation_has_an_entry():
    cited = re.findall(r"\{cite(?::\w+)?\}`([^`]*)`", "".join(PAGES.values()))
    assert {key.strip() for keys in cited for key in keys.split(",")} == set(ENTRIES)


@pytest.mark.parametrize("key", ENTRIES)
def test_identity_entry_has_what_a_reader_needs_to_find_the_work(key):
    entry = ENTRIES[key]
    assert {"author", "title", "year"} <= set(entry)
    assert re.fullmatch(r"(19|20)\d\d", entry["year"])
    if "arxiv" in entry.get("url", "").lower() + entry.get("note", "").lower():
        numbers = {arxiv_number(entry[name]) for name in ("url", "note") if "arxiv" in entry.get(name, "").lower()}
        assert len(numbers) == 1 and None not in numbers
    else:
        assert {"journal", "booktitle", "publisher", "url"} & set(entry)


@pytest.mark.parametrize(
    "text",
    ["arXiv:2402.3902", "https://arxiv.org/abs/2413.03902", "https://arxiv.org/pdf/2402.03902", "arXiv:1008.25811"],
)
def test_rejects_a_malformed_number(text):
    assert arxiv_number(text) is None


@pytest.mark.parametrize(
    ("work", "key"), list(zip(CITATION["references"], ("cui2024", "boncoraglio2025"), strict=True))
)
def test_identity_citation_file_and_bibliography_name_the_same_papers(work, key):
    assert work["title"] == ENTRIES[key]["title"]
    assert str(work["year"]) == ENTRIES[key]["year"]
    assert work["url"] == ENTRIES[key]["url"]
    assert work["identifiers"][0]["value"] == f"arXiv:{arxiv_number(work['url'])}"
    names = [person["family-names"] for person in work["authors"]]
    assert names == [name.partition(",")[0].replace(r"{\'a}", "á") for name in ENTRIES[key]["author"].split(" and ")]
