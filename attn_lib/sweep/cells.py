"""The cells of a sweep: a problem, the seeds of its runs, and the other arguments of the measurement."""

import inspect
import json
from dataclasses import fields, is_dataclass
from hashlib import sha256
from itertools import product
from typing import NamedTuple

import numpy as np

from attn_lib._checks import check_integer

__all__ = ["Cell", "arguments", "grid", "key", "parameters"]


class Cell(NamedTuple):
    """What is computed and stored as one: a problem of :mod:`attn_lib.problems` and how it is measured.

    ``problem`` is None for a measurement that takes none. ``seeds`` (integers) are those of its runs, none where
    nothing is drawn; ``options`` are the other arguments of the measurement, by name: numbers, strings, or tuples of
    them.
    """

    problem: object = None
    seeds: tuple = ()
    options: dict = {}


def grid(problem, *, seeds=None, batch=1, **axes):
    """Cells of all combinations of the values.

    Parameters
    ----------
    problem : type
        Class of the problems, for instance PositionalSemantic.
    seeds : iterable of int, optional
        Distinct, >= 0. None where nothing is drawn.
    batch : int
        Seeds to a cell. One on a CPU, where the runs of a cell follow each other; more on a GPU, which trains them at
        once.
    axes : iterable
        Values of each field of the problem, and of each other argument of the measurement. Fields with a default
        may be left out.

    Returns
    -------
    list of Cell
        The last axis, then the seeds, varying fastest.

    Raises
    ------
    ValueError
        An axis that is empty or no iterable, seeds out of range, or values that the problem refuses.

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> cells = grid(PositionalSemantic, alpha=[0.5, 1.0], omega=[0.3], d=[100], seeds=range(4), batch=2)
    >>> len(cells), cells[1].problem.alpha, cells[1].seeds, cells[1].options
    (4, 0.5, (2, 3), {'d': 100})
    """
    if not (isinstance(problem, type) and is_dataclass(problem)):
        raise ValueError(f"problem = {problem!r}: must be a class of attn_lib.problems")
    check_integer("batch", batch, 1)
    values = {name: _listed(name, axis) for name, axis in axes.items()}
    seeds = [] if seeds is None else _listed("seeds", seeds)
    for seed in seeds:
        check_integer("seeds", seed, 0)
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds = {seeds!r}: must be distinct")
    batches = [tuple(seeds[i : i + batch]) for i in range(0, len(seeds), batch)] or [()]
    known = {field.name for field in fields(problem)}
    missing = [name for name, p in inspect.signature(problem).parameters.items() if p.default is p.empty]
    missing = [name for name in missing if name not in values]
    if missing:
        raise ValueError(f"{problem.__name__}: must be given values of {', '.join(missing)}")
    cells = []
    for combination in product(*values.values()):
        chosen = dict(zip(values, combination, strict=True))
        options = {name: value for name, value in chosen.items() if name not in known}
        one = problem(**{name: value for name, value in chosen.items() if name in known})
        cells += [Cell(one, batch, options) for batch in batches]
    return cells


def parameters(cell):
    """What a cell depends on, as it is stored.

    Parameters
    ----------
    cell : Cell

    Returns
    -------
    dict
        "problem" (nested dicts, each with its class as "type"; None where there is none), "seeds" and "options";
        JSON-able.

    Raises
    ------
    ValueError
        An option that JSON does not know.
    """
    content = {"problem": _described(cell.problem), "seeds": list(cell.seeds), "options": cell.options}
    try:
        return json.loads(json.dumps(content, default=_python, allow_nan=False))
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"options = {cell.options!r}: must be finite numbers, strings, or tuples of them") from error


def arguments(cell, device=None):
    """With which a cell calls the measurement.

    Parameters
    ----------
    cell : Cell
    device : str, optional

    Returns
    -------
    positional : tuple
        The problem, if there is one.
    named : dict
    """
    given = {**cell.options, "seeds": cell.seeds, "device": device}
    named = {name: value for name, value in given.items() if name in cell.options or value not in ((), None)}
    return () if cell.problem is None else (cell.problem,), named


def key(cell):
    """Name of the files of a cell: a hash of its parameters, in which 1 and 1.0 are the same.

    Parameters
    ----------
    cell : Cell

    Returns
    -------
    str
    """
    text = json.dumps(parameters(cell))
    canonical = json.loads(text, parse_float=lambda v: int(float(v)) if float(v).is_integer() else float(v))
    return sha256(json.dumps(canonical, sort_keys=True).encode()).hexdigest()[:20]


def _listed(name, axis):
    if isinstance(axis, str | bytes) or not hasattr(axis, "__iter__"):
        raise ValueError(f"{name} = {axis!r}: must be a list of values")
    values = [v.item() if isinstance(v, np.generic) else v for v in axis]
    if not values:
        raise ValueError(f"{name} = {axis!r}: must not be empty")
    return values


def _described(value):
    if not is_dataclass(value):
        return value
    content = {field.name: _described(getattr(value, field.name)) for field in fields(value)}
    return {"type": type(value).__name__, **content}


def _python(value):
    """Of what JSON does not know, a numpy number."""
    return value.item()
