"""Where the built book is, and its pages."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
HTML = ROOT / "_build" / "html"
SETTINGS = yaml.safe_load((ROOT / "_config.yml").read_text())
FILES = sorted([*HTML.glob("*.html"), *(HTML / "book").rglob("*.html")])
NAMES = [page.relative_to(HTML).as_posix() for page in FILES]
# The tests of a page stay together when they are shared out to processes: it is opened once.
PAGES = [pytest.param(FILES[i], id=name, marks=pytest.mark.xdist_group(name)) for i, name in enumerate(NAMES)]
