"""Remove from _build what no longer follows from the sources; run before each build of the book and before the tests.

The execution cache of Jupyter Book looks at the cells of a chapter only, so a change in attn_lib, in the
pinned versions or in the stored results would leave old outputs on the page; and Sphinx leaves pages that
were removed. Fingerprints are kept in _build, each with what must go when it changes. With the argument "evidence",
only the evidence for the claims, which the tests read too, is looked at.
"""

import hashlib
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "_build"


def fingerprint(paths, more=""):
    """Hash of the names and the contents of some files."""
    digest = hashlib.sha256(more.encode())
    for path in sorted(paths):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"\n{path.relative_to(ROOT).as_posix()} {content}".encode())
    return digest.hexdigest()


def behind_the_outputs():
    """Everything besides its own cells that the output of a chapter depends on."""
    files = [*(ROOT / "attn_lib").rglob("*.py"), ROOT / "requirements.txt"]
    data = (ROOT / "book" / "data").rglob("*")
    files += [path for path in data if path.is_file() and "__pycache__" not in path.parts]
    return fingerprint(files, more=sys.version)


def layout():
    """The list of pages, how they are built and what is copied beside them."""
    looks = [path for name in ("_static", "_templates", "_ext") for path in (ROOT / "book" / name).rglob("*")]
    looks = [path for path in looks if path.is_file() and "__pycache__" not in path.parts]
    return fingerprint([ROOT / "_config.yml", ROOT / "_toc.yml", *looks])


def forget(name, now, stale):
    """Remove the folders in stale unless the fingerprint called name is still the one given."""
    kept = BUILD / f".{name}"
    if kept.is_file() and kept.read_text() == now:
        return
    for folder in stale:
        if (BUILD / folder).exists():
            print(f"{name} changed: _build/{folder} is built anew")
            shutil.rmtree(BUILD / folder)
    BUILD.mkdir(exist_ok=True)
    kept.write_text(now)


if __name__ == "__main__":
    outputs, pages = behind_the_outputs(), [".doctrees", "html"]
    forget("behind_the_evidence", outputs, ["evidence"])
    if sys.argv[1:] != ["evidence"]:
        forget("behind_the_outputs", outputs, [".jupyter_cache", "jupyter_execute", *pages])
        forget("layout", layout(), pages)
