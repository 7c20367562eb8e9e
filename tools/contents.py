"""The pages of the book, for the other tools."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent


def page_names():
    """Names of all pages, without ending, in the order of the table of contents."""

    def names(entries):
        for entry in entries:
            yield entry["file"]
            yield from names(entry.get("sections", []))

    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [toc["root"], *(name for part in toc["parts"] for name in names(part["chapters"]))]
