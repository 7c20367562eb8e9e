"""Launch buttons, what Binder installs, and the way out of Jupyter Book.

The pages are built here from the sources, without executing anything.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from built import FILES, HTML, ROOT

EXECUTED = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {name: python3, display_name: Python 3, language: python}
mystnb: {execution_mode: force}
---

# A page

```{code-cell} python3
print("something")
```
"""
CHAPTERS = ("book/part1/phase_transition", "book/part2/lasso", "book/executed")
ADDRESS = "https://github.com/OWNER/NAME"


def copy_sources(folder):
    """Copy the repository without what is hidden or built."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "_build", "__pycache__"), dirs_exist_ok=True)


# sphinx-build, twice as fast without the collector of garbage, as in the Makefile
SPHINX = "import gc, sys; gc.disable(); from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"


def run(*arguments, cwd, **environment):
    """Run a program of the environment; what it says on failure is shown."""
    program, *rest = arguments
    command = [Path(sys.executable).parent / program, *rest]
    done = subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module", params=["", ADDRESS], ids=["no address", "address"])
def small_book(request, tmp_path_factory):
    """The address of the repository in the settings, and a book of two chapters and an executed page built with it."""
    folder = tmp_path_factory.mktemp("small")
    copy_sources(folder)
    settings = yaml.safe_load((folder / "_config.yml").read_text())
    (folder / "book" / "executed.md").write_text(EXECUTED)
    settings["repository"]["url"] = request.param
    settings["execute"]["execute_notebooks"] = "off"
    (folder / "_config.yml").write_text(yaml.safe_dump(settings))
    contents = {"format": "jb-book", "root": "book/bibliography", "chapters": [{"file": name} for name in CHAPTERS]}
    (folder / "_toc.yml").write_text(yaml.safe_dump(contents))
    run("jupyter-book", "build", ".", "--quiet", cwd=folder)
    return request.param, folder / "_build" / "html"


@pytest.mark.xdist_group("small book")
def test_identity_buttons_for_launching_and_editing_are_there_if_and_only_if_the_address_is_known(small_book):
    address, html = small_book
    for name in CHAPTERS:
        header = BeautifulSoup((html / f"{name}.html").read_text(), "html.parser").select_one(".bd-header-article")
        outside = {tag["href"] for tag in header("a", href=re.compile("^http"))}
        if not address:
            assert outside == set()
            continue
        assert f"https://mybinder.org/v2/gh/OWNER/NAME/main?urlpath=lab/tree/{name}.md" in outside
        assert {f"{ADDRESS}", f"{ADDRESS}/edit/main/{name}.md"} <= outside


@pytest.mark.xdist_group("small book")
def test_identity_downloaded_notebook_has_no_outputs(small_book):
    _, html = small_book
    for name in CHAPTERS:
        notebook = nbformat.read(html / "_sources" / f"{name}.ipynb", as_version=4)
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert len(code) == (html / "_sources" / f"{name}.md").read_text().count("\n```{code-cell}")
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def wanted_by_binder():
    """{package: version} that binder/environment.yml asks for; the version is empty where any will do."""
    entries = yaml.safe_load((ROOT / "binder" / "environment.yml").read_text())["dependencies"]
    return {name: version for name, _, version in (entry.partition("=") for entry in entries)}


def test_identity_binder_has_the_versions_of_the_book():
    pins = dict(line.split("==") for line in (ROOT / "requirements.txt").read_text().splitlines() if "==" in line)
    wanted = wanted_by_binder()
    wanted["torch"] = wanted.pop("pytorch-cpu")
    others = {"setuptools", "jupytext"}
    series = {name: ".".join(pins[name].split(".")[:2]) for name in wanted.keys() & pins.keys() - others}
    assert {name: wanted[name] for name in series} == series
    assert wanted.keys() - pins.keys() == {"python", "jupyterlab", "pip"}


def test_identity_binder_has_what_the_chapters_import():
    distributions = {"torch": "pytorch-cpu", "sklearn": "scikit-learn", "myst_nb": "myst-nb"}
    wanted = wanted_by_binder() | {"IPython": "", "cycler": "", "attn_lib": ""}  # the last from postBuild
    for source in [*(ROOT / "book").glob("part?/*.md"), *(ROOT / "attn_lib").rglob("*.py")]:
        code = source.read_text()
        if source.suffix == ".md":
            code = "\n".join(re.findall(r"\n```\{code-cell\}.*?\n(.*?)\n```", code, re.DOTALL))
        names = set(re.findall(r"^\s*(?:import|from) (\w+)[\w.]*(?: import| as|$)", code, re.MULTILINE))
        needed = {distributions.get(name, name) for name in names - sys.stdlib_module_names}
        assert needed <= wanted.keys() | {"distributed"}, source  # distributed only for a cluster


def test_agrees_with_plain_sphinx(tmp_path):
    # With the executed cells of the book; a page that is not among them would stop at its first slow cell.
    cache = ROOT / "_build" / ".jupyter_cache"
    assert cache.is_dir(), "run `make book` first"
    copy_sources(tmp_path)
    run("jupyter-book", "config", "sphinx", ".", cwd=tmp_path)
    configuration = (tmp_path / "conf.py").read_text()
    assert configuration.count("'jupyter_book', ") == 1
    (tmp_path / "conf.py").write_text(configuration.replace("'jupyter_book', ", ""))
    settings = [f"--define=nb_execution_cache_path={cache}", "--define=nb_execution_timeout=1"]
    strict = ["--quiet", "--nitpicky", "--fail-on-warning", "--keep-going"]
    run("python", "-c", SPHINX, *strict, *settings, ".", "plain", cwd=tmp_path, PYTHONPATH=f"book/_ext:{ROOT}")
    plain = tmp_path / "plain"
    found = {page.relative_to(plain) for page in [*plain.glob("*.html"), *(plain / "book").rglob("*.html")]}
    assert found | {Path("index.html")} == {page.relative_to(HTML) for page in FILES}
    ours, theirs = (json.loads(search_index(folder)) for folder in (HTML, plain))
    assert ours["titles"] == theirs["titles"] and ours["terms"] == theirs["terms"]


def search_index(folder):
    """What the search of a built book knows of its pages."""
    return (folder / "searchindex.js").read_text().removeprefix("Search.setIndex(").removesuffix(")")
