"""Results of finished runs on disk, so that an interrupted training does not lose them.

A file belongs to one set of parameters and holds one row of results per seed. It is replaced as a whole, never
written in place: an interruption leaves the last complete one.
"""

import json
import os
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from attn_lib.simulation._checks import require

__all__ = ["load", "save"]

_UNREADABLE = ValueError, KeyError, TypeError, AttributeError, NotImplementedError  # what numpy makes of other files


def save(path, parameters, rows):
    """Write the finished runs.

    Parameters
    ----------
    path : str or Path
        Of the file; its directory must exist.
    parameters : dict
        What the runs depend on besides the seed: names, and numbers, strings or nested dicts and tuples of them.
    rows : dict
        From seeds to rows, each a dict of names and arrays; the names are the same for all.
    """
    path = Path(path)
    names = next(iter(rows.values()))
    columns = {f"row_{name}": np.array([row[name] for row in rows.values()]) for name in names}
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        np.savez(file, parameters=_written(parameters), seeds=list(rows), **columns)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load(path, parameters):
    """Read the finished runs.

    Parameters
    ----------
    path : str or Path
    parameters : dict
        As given to :func:`save`.

    Returns
    -------
    dict
        From seeds to rows; empty if there is no such file.

    Raises
    ------
    ValueError
        Its directory does not exist, the file is no checkpoint, or one of other parameters: the message names the
        first that differs.
    """
    is_path = isinstance(path, str | Path) and str(path) and Path(path).parent.is_dir()
    require(is_path, "checkpoint", path, "a path in a directory that exists")
    path = Path(path)
    if not path.exists():
        return {}
    try:
        with path.open("rb") as file, np.load(file) as archive:
            content = dict(archive)
        header, seeds = dict(json.loads(str(content.pop("parameters")))), content.pop("seeds").tolist()
    except (*_UNREADABLE, OSError, EOFError, BadZipFile) as error:
        raise ValueError(f"checkpoint = {str(path)!r}: must be a file that a training wrote, or none") from error
    for name, value in json.loads(_written(parameters)).items():
        was = header.get(name)
        if was != value:
            raise ValueError(f"checkpoint = {str(path)!r}: must hold runs at {name} = {value!r}, but does at {was!r}")
    columns = {name.removeprefix("row_"): v for name, v in content.items()}
    return {seed: {name: column[i] for name, column in columns.items()} for i, seed in enumerate(seeds)}


def _written(parameters):
    return json.dumps(parameters, default=lambda value: value.item())
