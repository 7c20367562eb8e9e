"""The pages of the book, for the other tools."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent


def page_names():
    """Names of all pages, without ending, in the order of the table of contents."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])]
