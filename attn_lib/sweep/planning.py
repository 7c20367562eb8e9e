"""What of a sweep is there already, what is left, and how long that will take."""

import inspect
from dataclasses import dataclass

import numpy as np

from attn_lib._checks import check_type
from attn_lib.sweep.cells import arguments, key
from attn_lib.sweep.code import load, made_by
from attn_lib.sweep.store import Store

__all__ = ["OUTDATED", "Plan", "plan"]

OUTDATED = ("refuse", "recompute", "keep")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cells of a sweep, each of them in one of three lists.

    Attributes
    ----------
    done, failed : dict
        From keys to records.
    missing : dict
        From keys to the runs that wrote the records to be replaced; None where there is no record.
    outdated : dict
        From keys to what has changed since, for instance "code": of the done cells, also of those to be computed again.
    """

    done: dict
    failed: dict
    missing: dict
    outdated: dict

    def seconds(self, workers=1):
        """Expected duration of what is missing, from that of the cells that are done.

        Parameters
        ----------
        workers : int

        Returns
        -------
        float or None
            None when no cell is done.
        """
        if not self.missing:
            return 0.0
        if not self.done:
            return None
        mean = np.mean([record["seconds"] for record in self.done.values()])
        return float(mean * len(self.missing) / min(workers, len(self.missing)))

    def __str__(self):
        counts = f"{len(self.done)} done, {len(self.missing)} missing, {len(self.failed)} failed"
        return f"{len(self.done) + len(self.missing) + len(self.failed)} cells: {counts}"


def plan(measurement, cells, folder, *, device=None, outdated="refuse", retry=False):
    """Compare a sweep with what is stored. Nothing is computed or written.

    Parameters
    ----------
    measurement : str
        Of the form module.function.
    cells : iterable of Cell
    folder : str or Path
    device : str, optional
        For measurements that take one.
    outdated : str
        What to do with finished cells that were made with another version of the code, of Python or of a library:
        "refuse", "recompute" or "keep".
    retry : bool
        Whether cells that failed count as missing. They do anyway when the code has changed since.

    Returns
    -------
    Plan
        Keys in their own order, in which the cells are computed: as good as random, so that the first ones tell how
        long the others will take.

    Raises
    ------
    ValueError
        Unknown measurement, a problem or arguments that it does not take, no or equal cells, a folder that holds
        another measurement, or outdated cells where these are refused.
    """
    if outdated not in OUTDATED:
        raise ValueError(f"outdated = {outdated!r}: must be one of {OUTDATED}")
    function, names = load(measurement), set()
    for cell in cells:
        _check_arguments(function, cell, device)
        name = key(cell)
        if name in names:
            raise ValueError(f"cells: must be distinct, but {cell} is there twice")
        names.add(name)
    if not names:
        raise ValueError("cells = []: must not be empty")
    store, now = Store(folder), made_by(measurement)
    other = next((r["measurement"] for r in map(store.record, store.keys()) if r), measurement)
    if other != measurement:
        raise ValueError(f"folder = {str(folder)!r}: must not hold cells of another measurement, but does of {other}")
    found = Plan(done={}, failed={}, missing={}, outdated={})
    for name in sorted(names):
        record = store.record(name)
        changed = [part for part in now if record and record["made_by"].get(part) != now[part]]
        failed = record and record["error"] is not None
        if not record or (failed and (retry or changed)) or (not failed and changed and outdated == "recompute"):
            found.missing[name] = record and record["run"]
        else:
            (found.failed if failed else found.done)[name] = record
        if changed and not failed:
            found.outdated[name] = changed
    if found.outdated and outdated == "refuse":
        parts = sorted({part for changed in found.outdated.values() for part in changed})
        raise ValueError(
            f"folder = {str(folder)!r}: {len(found.outdated)} cells were made with another version of "
            f"{', '.join(parts)}; outdated must be 'recompute' or 'keep' to go on (or choose another folder)"
        )
    return found


def _check_arguments(function, cell, device):
    for name in ("problem", "seeds", "device"):
        if name in cell.options:
            raise ValueError(f"options = {cell.options!r}: must not have {name!r}, which is told apart from them")
    signature, (positional, named) = inspect.signature(function), arguments(cell, device)
    try:
        signature.bind(*positional, **named)
    except TypeError as error:
        raise ValueError(f"arguments of {function.__name__}{signature}: {error}") from error
    kind = next(iter(signature.parameters.values())).annotation if positional else object
    if isinstance(kind, type) and kind is not inspect.Parameter.empty:
        check_type("problem", cell.problem, kind)
