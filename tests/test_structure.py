"""The house rules that can be read off the source: who imports whom, sizes, docstrings, reference pages."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "attn_lib").rglob("*.py"))}

# Modules that may see theory and simulation.
JOINING = ["attn_lib.comparison", "attn_lib.claims", "attn_lib.sweep"]

# What a file must not import: the flow is problem -> theory | simulation -> comparison, claims -> figures.
# The first pattern that a file name matches decides.
FORBIDDEN = [
    (r"attn_lib/theory/", ["attn_lib.simulation", *JOINING, "torch", "matplotlib"]),
    (r"attn_lib/simulation/", ["attn_lib.theory", *JOINING, "matplotlib"]),
    (r"attn_lib/exercises/", ["attn_lib.simulation", "torch", "matplotlib"]),
    (r"attn_lib/(comparison|claims|sweep)", ["torch", "matplotlib"]),
    (r"attn_lib/interactive/part", ["attn_lib.simulation", "torch", "matplotlib"]),
    (r"attn_lib/figures\.py", ["attn_lib.theory", "attn_lib.simulation", "torch"]),
    (r"attn_lib/", ["attn_lib.theory", "attn_lib.simulation", "torch", "matplotlib"]),
]

# Pages of the reference as the table of contents lists them, with their texts: overviews, and pages of modules.
REFERENCE = {
    page: (ROOT / f"{page}.md").read_text()
    for page in re.findall(r"- file: (book/reference/\S+)$", (ROOT / "_toc.yml").read_text(), re.MULTILINE)
}
MODULE_PAGES = [page for page in REFERENCE if page.count("/") == 3]
ROOMS = list(dict.fromkeys(page.rpartition("/")[0] for page in MODULE_PAGES))


def module_name(file):
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported_by(file, source):
    """Full names of what a file imports anywhere, also inside functions."""
    package = module_name(file).split(".")
    if not file.endswith("/__init__.py"):
        package.pop()
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{start}.{alias.name}" for alias in node.names}
    return names


def breaches(file, source):
    """Imports of a file that the one-way flow forbids."""
    forbidden = next(modules for pattern, modules in FORBIDDEN if re.match(pattern, file))
    return {
        name for name in imported_by(file, source) if any(f"{name}.".startswith(f"{module}.") for module in forbidden)
    }


def public_definitions(source):
    """Functions and classes at the top of a file whose names do not begin with an underscore."""
    kinds = ast.FunctionDef | ast.ClassDef
    return [node for node in ast.parse(source).body if isinstance(node, kinds) and node.name[0] != "_"]


def missing_sections(node):
    """What the docstring of a function or a class lacks."""
    text = ast.get_docstring(node)
    if text is None:
        return ["docstring"]
    if isinstance(node, ast.ClassDef):
        return []
    returns = any(isinstance(part, ast.Return) and part.value for part in ast.walk(node))
    takes = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    wanted = ["Parameters"] * bool(takes) + ["Returns"] * returns
    return [section for section in wanted if f"\n{section}\n{'-' * len(section)}\n" not in text]


@pytest.mark.parametrize("file", FILES)
def test_identity_imports_flow_one_way(file):
    assert not breaches(file, FILES[file].read_text())


@pytest.mark.parametrize("file", FILES)
def test_identity_files_are_short_and_ascii(file):
    content = FILES[file].read_bytes()
    assert content.isascii()
    assert content.count(b"\n") <= 300


@pytest.mark.parametrize("file", FILES)
def test_identity_docstrings_are_complete(file):
    tree = ast.parse(FILES[file].read_text())
    assert ast.get_docstring(tree), "the module has no docstring"
    lacking = {node.name: missing_sections(node) for node in public_definitions(FILES[file].read_text())}
    assert {name: sections for name, sections in lacking.items() if sections} == {}


def test_identity_public_modules_are_in_the_reference_once():
    shown = [module for text in REFERENCE.values() for module in re.findall(r"^\.\. automodule:: (\S+)$", text, re.M)]
    assert sorted(shown) == sorted(name for name in map(module_name, FILES) if "._" not in name)


def test_identity_pages_of_the_reference_are_listed_and_have_titles_of_their_own():
    pages = (path.relative_to(ROOT) for path in (ROOT / "book" / "reference").rglob("*.md"))
    assert sorted(REFERENCE) == sorted(page.with_suffix("").as_posix() for page in pages)
    titles = [re.search("^# (.+)$", text, re.MULTILINE)[1] for text in REFERENCE.values()]
    assert sorted(set(titles)) == sorted(titles)


@pytest.mark.parametrize("page", MODULE_PAGES)
def test_identity_page_of_a_module_has_its_title_its_name_and_what_it_defines(page):
    name = "attn_lib." + page.removeprefix("book/reference/").removeprefix("numerics/").replace("/", ".")
    title, rest = REFERENCE[page].split("\n", 1)
    assert re.match("# [A-Z]", title)
    assert rest == f"\n`{name}`\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n```\n"


@pytest.mark.parametrize("room", ROOMS)
def test_identity_overview_of_a_room_lists_its_modules_in_the_order_of_the_contents(room):
    listed = re.findall(r"^   (?:~attn_lib\.)?(\w+)$", REFERENCE[room], re.MULTILINE)
    assert listed == [page.rpartition("/")[2] for page in MODULE_PAGES if page.startswith(f"{room}/")]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("attn_lib/theory/transitions.py", "import torch.nn"),
        ("attn_lib/theory/transitions.py", "from ..simulation import erm"),
        ("attn_lib/theory/transitions.py", "from attn_lib import simulation"),
        ("attn_lib/theory/__init__.py", "from ..simulation.erm import train_positional_semantic"),
        ("attn_lib/simulation/erm.py", "def f():\n    from attn_lib.theory import transitions"),
        ("attn_lib/simulation/erm.py", "from .. import theory"),
        ("attn_lib/gaussian.py", "from attn_lib.theory.transitions import alpha_c"),
        ("attn_lib/gaussian.py", "from . import simulation"),
        ("attn_lib/comparison.py", "import matplotlib.pyplot as plt"),
        ("attn_lib/claims/__init__.py", "from torch import nn"),
        ("attn_lib/figures.py", "from attn_lib.theory import positional_semantic"),
    ],
)
def test_rejects_a_forbidden_import(file, line):
    assert breaches(file, line)


@pytest.mark.parametrize(
    "definition",
    [
        "def f(): pass",
        "class C: pass",
        'def f(x):\n    """Sum.\n\n    Returns\n    -------\n    float\n    """\n    return x + x',
        'def f(x):\n    """Sum.\n\n    Parameters\n    ----------\n    x : float\n    """\n    return x + x',
    ],
)
def test_rejects_an_incomplete_docstring(definition):
    (node,) = public_definitions(definition)
    assert missing_sections(node)
