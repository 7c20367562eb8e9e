"""The finished cells of a sweep as the columns of a table."""

import numpy as np

from attn_lib.sweep.store import Store

__all__ = ["read", "table_of"]


def read(folder):
    """All finished cells of a folder.

    Parameters
    ----------
    folder : str or Path

    Returns
    -------
    dict
        As :func:`table_of`.

    Raises
    ------
    ValueError
        There are none.
    """
    store = Store(folder)
    records = {key: record for key in store.keys() if (record := store.record(key)) and record["error"] is None}
    if not records:
        raise ValueError(f"folder = {str(folder)!r}: must hold finished cells")
    return table_of(store, records)


def table_of(store, records):
    """One row for each run: a seed of a cell, or a cell without seeds.

    Parameters
    ----------
    store : Store
    records : dict
        From keys to records of finished cells.

    Returns
    -------
    dict
        From names to arrays with one entry a row. The columns are the fields of the problem (of a target its class, as
        "target", and its fields, as "target.kappa0"), the options, "seed", what was measured, and of the cell "device",
        "seconds" (its duration divided by the number of its rows) and "code" (hash). A column whose entries differ in
        shape, or that some rows lack, consists of objects, None where there is nothing.
    """
    rows, names = [], {}
    for key, record in records.items():
        seeds = record["seeds"]
        n_rows = max(1, len(seeds))
        cell = {**_flat(record["problem"] or {}), **record["options"]}
        about = {"device": record["device"], "seconds": record["seconds"] / n_rows, "code": record["made_by"]["code"]}
        values = store.values(key)
        for i in range(n_rows):
            parameters = {**cell, **({"seed": seeds[i]} if seeds else {})}
            names |= dict.fromkeys(parameters)
            rows.append((parameters, {name: v[i] if seeds else v for name, v in values.items()} | about))
    rows.sort(key=lambda row: [_ordered(row[0].get(name)) for name in names])
    names |= dict.fromkeys(name for _, measured in rows for name in measured)
    return {name: _column([(parameters | measured).get(name) for parameters, measured in rows]) for name in names}


def _flat(problem, prefix=""):
    """Names and values of the fields, those of a nested problem with a dot."""
    found = {}
    for name, value in problem.items():
        if isinstance(value, dict):
            found |= {f"{prefix}{name}": value["type"], **_flat(value, f"{prefix}{name}.")}
        elif name != "type":
            found[f"{prefix}{name}"] = value
    return found


def _ordered(value):
    """What numbers, then all else, are sorted by."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, value, "") if number else (1, 0, str(value))


def _column(entries):
    arrays = [np.asarray(entry) for entry in entries if entry is not None]
    alike = len(arrays) == len(entries) and len({(a.shape, a.dtype.kind in "US") for a in arrays}) == 1
    if alike:
        return np.array(arrays)
    column = np.empty(len(entries), dtype=object)
    for i, entry in enumerate(entries):
        column[i] = entry
    return column
