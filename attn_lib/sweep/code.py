"""With which code a number was made: a hash of the sources that a measurement runs, and versions of its libraries."""

import ast
import importlib
import platform
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

__all__ = ["LIBRARIES", "load", "made_by", "sources"]

LIBRARIES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "torch": "torch",
    "sklearn": "scikit-learn",
}  # as imported, as installed


def load(measurement):
    """The function of a name.

    Parameters
    ----------
    measurement : str
        Of the form module.function.

    Returns
    -------
    function

    Raises
    ------
    ValueError
        There is none.
    """
    module, _, name = measurement.rpartition(".")
    try:
        if module == "__main__":
            raise ImportError("another process has another __main__")
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        allowed = "module.function, which can be imported"
        raise ValueError(f"measurement = {measurement!r}: must be {allowed} ({error})") from error
    if not callable(function):
        raise ValueError(f"measurement = {measurement!r}: must be a function")
    return function


@cache
def made_by(measurement):
    """With which code a measurement runs in this process; computed once.

    Parameters
    ----------
    measurement : str

    Returns
    -------
    dict
        "code", the hash, "python", and the versions of those of ``LIBRARIES`` that are imported. Comments,
        docstrings and formatting do not count.
    """
    files, imported = sources(measurement.rpartition(".")[0])
    digest = sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name} {_digest(path)}\n".encode())
    libraries = {name: version(name).partition("+")[0] for module, name in LIBRARIES.items() if module in imported}
    return {"code": digest.hexdigest()[:16], "python": platform.python_version(), **libraries}


def sources(module):
    """Files that a module imports from its own package and from attn_lib, directly or not, and other packages.

    The problems are among them, since a measurement is given one.

    Parameters
    ----------
    module : str

    Returns
    -------
    files : dict
        From names of modules, this one among them, to paths.
    others : set of str
        Top-level names of all else that these import.
    """
    own = {"attn_lib", module.partition(".")[0]}
    files, others, pending = {}, set(), [module, "attn_lib.problems"]
    while pending:
        name = pending.pop()
        if name in files:
            continue
        if name.partition(".")[0] not in own:
            others.add(name.partition(".")[0])
            continue
        path = _file(name)
        if path is None:  # a name in a module, not a module
            pending.append(name.rpartition(".")[0])
            continue
        files[name] = path
        pending += _imports(name, path)
    return files, others


def _file(name):
    """Of a module, without importing it; None if there is no such module."""
    top, *rest = name.split(".")
    spec = find_spec(top)
    if spec is None or not (spec.origin or "").endswith(".py"):
        return None
    path = Path(spec.origin)
    if rest and path.name != "__init__.py":  # not a package
        return None
    path = path.parent.joinpath(*rest) if rest else path
    candidates = (path, path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _imports(name, path):
    """Full names of what a file imports anywhere, also inside functions; names in modules among them."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            names += [f"{start}.{alias.name}" for alias in node.names]
    return names


@cache
def _digest(path):
    """Of the code in a file, as it was when this process asked first: later changes are not what it runs."""
    tree = ast.parse(path.read_text())
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return sha256(ast.dump(tree).encode()).hexdigest()
