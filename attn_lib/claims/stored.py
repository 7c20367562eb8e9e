"""Stored evidence: results of minutes that the scripts in ``book/data`` have written, with their seeds and versions.

The files are part of the repository, not of an installed package. ``make reproduce`` computes them anew.
"""

import json
from pathlib import Path

__all__ = ["stored_parts"]

FOLDER = Path(__file__).resolve().parents[2] / "book" / "data"


def stored_parts(name, kind):
    """Parts of a stored result.

    Parameters
    ----------
    name : str
        Of the file in ``book/data``, without its ending.
    kind : str
        What the names of the parts begin with, up to the first slash.

    Returns
    -------
    dict
        The rest of the name of each part to its value.

    Raises
    ------
    FileNotFoundError
        The package is not in its repository.
    ValueError
        No part of this kind.

    Examples
    --------
    >>> parts = stored_parts("thresholds", "bayes")
    >>> sorted(parts), sorted(parts["0.5"])
    (['0.0', '0.5'], ['alpha', 'matrix_error', 'test_error'])
    """
    path = FOLDER / f"{name}.json"
    if not path.exists():
        raise FileNotFoundError(f"{path}: stored evidence comes with the repository, not with the package alone")
    parts = json.loads(path.read_text())["parts"]
    found = {key.partition("/")[2]: part["value"] for key, part in parts.items() if key.startswith(f"{kind}/")}
    if not found:
        raise ValueError(f"kind = {kind!r}: must be one of {sorted({key.partition('/')[0] for key in parts})}")
    return found
