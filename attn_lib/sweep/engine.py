"""Computes what a sweep lacks: in processes of this machine by joblib, or on a Dask cluster."""

import socket
import time
import traceback
import warnings
from concurrent.futures import CancelledError
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple
from uuid import uuid4

import numpy as np
from joblib import Parallel, cpu_count, delayed, parallel_config
from joblib.externals.loky.process_executor import BrokenProcessPool
from tqdm import tqdm

from attn_lib._checks import check_integer
from attn_lib.sweep.cells import Cell, arguments, key, parameters
from attn_lib.sweep.code import load, made_by
from attn_lib.sweep.planning import plan
from attn_lib.sweep.store import Store
from attn_lib.sweep.table import table_of

__all__ = ["Outcome", "run"]

# Of processes in a row: of a cell on Dask, whose scheduler sends it to other workers; or before they compute anything.
MAX_DEATHS = 3

IDLE = 20  # seconds after which a process without work ends; the only sign that a sweep was killed


class Outcome(NamedTuple):
    """The end of a sweep: the table of the cells that are done, and the records of those that failed.

    ``table`` is a dict of columns as made by :func:`attn_lib.sweep.table.table_of`; of each failed cell, ``failed`` has
    the parameters and the "error".
    """

    table: dict
    failed: list


class _DeadWorker(Exception):
    """A process died."""


class Task(NamedTuple):
    """A cell on its way to a process."""

    measurement: str
    cell: Cell
    store: Store
    device: str | None
    run: str
    replaces: str | None
    made_by: dict


def run(
    measurement,
    cells,
    folder,
    *,
    workers=None,
    scheduler=None,
    device=None,
    outdated="refuse",
    retry=False,
    progress=True,
):
    """Compute the cells that the folder lacks, each stored as soon as it is there.

    A process may be killed at any moment: the next call computes what is missing. Several calls may share a folder, on
    one machine or many; each cell is computed by one of them. A cell that raises, or whose process dies twice, is
    recorded with its error, and the others go on.

    Parameters
    ----------
    measurement : str
        Of the form module.function, importable by every worker: a function of the problem of a cell (if it has one)
        and, by keyword, of its seeds (if it has any) and options, that returns a dict of numbers and arrays. With
        seeds, each value has one entry a seed. If it takes a "device", it returns the one that it used as "device".
        Where the parameter for the problem is annotated with a class, other problems are refused.
    cells : iterable of Cell
    folder : str or Path
        Shared by all workers.
    workers : int, optional
        Processes on this machine, by default one for each core; 1 computes in this process, with all threads.
    scheduler : str, optional
        Address of a Dask scheduler, whose workers then compute.
    device : str, optional
        For measurements that take one, which by default use a GPU where there is one.
    outdated : str
        What to do with finished cells that were made with another version of the code, of Python or of a library:
        "refuse", "recompute" or "keep".
    retry : bool
        Whether to compute cells that failed again. They are anyway when the code has changed since.
    progress : bool
        Show a progress bar with the remaining time, on stderr.

    Returns
    -------
    Outcome

    Raises
    ------
    ValueError
        As :func:`attn_lib.sweep.planning.plan`; before anything is computed.
    OSError
        The folder cannot be written to (before anything is computed, if it is so then), or no such scheduler.
    RuntimeError
        Workers that run other code than this process or die before they compute, or a scheduler that is lost.
    """
    if workers is not None:
        check_integer("workers", workers, 1)
    cells = list(cells)
    found = plan(measurement, cells, folder, device=device, outdated=outdated, retry=retry)
    store, name = Store(folder), uuid4().hex
    if found.missing:
        store.prepare()
        now = made_by(measurement)
        by_key = {key(cell): cell for cell in cells}
        tasks = [Task(measurement, by_key[k], store, device, name, old, now) for k, old in found.missing.items()]
        with _pool(workers, scheduler) as pool:
            there = len(cells) - len(tasks)
            with tqdm(total=len(cells), initial=there, unit="cell", disable=not progress) as bar:
                _complete(tasks, pool, bar, wait=False)
                _complete([task for task in tasks if _is_left(task)], pool, bar, wait=True)
        left = [task for task in tasks if _is_left(task)]
        if left:
            raise RuntimeError(
                f"{len(left)} cells were computed but are not in {store.folder}: workers do not share it"
            )
    records = {k: store.record(k) for k in map(key, cells)}
    done = {k: record for k, record in records.items() if record["error"] is None}
    return Outcome(table_of(store, done), [record for record in records.values() if record["error"] is not None])


def _complete(tasks, pool, bar, *, wait):
    """Compute all tasks, except those that another sweep is computing (with wait: after it).

    When a process of this machine dies, its pool ends with it. What was in progress is tried again at the end, each
    cell alone.
    """
    left, suspects, barren = tasks, [], 0

    def died(tasks):
        try:
            for settled in pool(tasks, wait):
                bar.update(settled)
        except _DeadWorker:
            return True
        return False

    while left and died(left):
        left = [task for task in left if _is_left(task)]
        found = [task for task in left if task.store.died(key(task.cell), task.run)]
        barren = 0 if found else barren + 1
        if left and barren == MAX_DEATHS:
            raise RuntimeError("worker processes die before they compute: too little memory, or an import that fails?")
        suspects += found
        left = [task for task in left if task not in found]
    for task in suspects:
        if died([task]) and _is_left(task):
            _store_death(task)
            bar.update()


def _compute(task, wait):
    """Compute and store one cell, unless another sweep did; False if another one is at it now."""
    with task.store.claim(key(task.cell), task.run, wait=wait) as deaths:
        if deaths is None or not _is_left(task):
            return deaths is not None
        if deaths == MAX_DEATHS:
            _store_death(task)
            return True
        here = made_by(task.measurement)
        if here != task.made_by:
            raise RuntimeError(f"{socket.gethostname()}: must run the code {task.made_by}, but has {here}")
        function, (positional, named) = load(task.measurement), arguments(task.cell, task.device)
        begin = _clocks()
        try:
            values = _arrays(function(*positional, **named), task.cell)
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            _store(task, _clocks() - begin, error=f"{type(error).__name__}: {error}", traceback=text)
        else:
            _store(task, _clocks() - begin, values)
        return True


def _clocks():
    """Seconds on the wall, and of this process on all its processors."""
    return np.array([time.perf_counter(), time.process_time()])


def _is_left(task):
    """Whether nobody has stored the cell since this sweep was planned."""
    record = task.store.record(key(task.cell))
    return (record and record["run"]) == task.replaces


def _store_death(task):
    _store(task, (0.0, 0.0), error="the process that computed this cell died, and did so again: out of memory?")


def _store(task, seconds, values=None, **error):
    device = str(values.pop("device", "cpu")) if values else task.device
    record = {
        "measurement": task.measurement,
        **parameters(task.cell),
        "error": None,
        **error,
        "device": device,
        "seconds": round(float(seconds[0]), 4),
        "cpu_seconds": round(float(seconds[1]), 4),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "made_by": task.made_by,
        "run": task.run,
    }
    task.store.write(key(task.cell), record, values)


def _arrays(values, cell):
    """The values as arrays, checked."""
    if not isinstance(values, dict) or not values:
        raise TypeError(f"a measurement must return a dict of numbers and arrays, not {values!r}")
    arrays = {name: np.asarray(value) for name, value in values.items()}
    taken = {*(parameters(cell)["problem"] or ()), *cell.options, "seed", "seconds", "code"}
    for name, array in arrays.items():
        if array.dtype.kind not in "biufcUS":
            raise TypeError(f"{name} = {values[name]!r}: must be numbers or strings")
        if cell.seeds and name != "device" and array.shape[:1] != (len(cell.seeds),):
            raise ValueError(f"{name} of shape {array.shape}: must have one entry for each of {len(cell.seeds)} seeds")
        if name in taken:
            raise ValueError(f"{name}: must have a name that is not a parameter of the cell")
    return arrays


@contextmanager
def _pool(workers, scheduler):
    """A function of tasks and wait that computes them somewhere, and yields what became of each."""
    if scheduler is not None:
        from distributed import Client

        with Client(scheduler, timeout=30, set_as_default=False) as client:
            yield partial(_on_dask, client)
        return
    n_workers = workers or cpu_count()
    loky = {"inner_max_num_threads": 1 if n_workers > 1 else None, "idle_worker_timeout": IDLE}
    with warnings.catch_warnings(), parallel_config(backend="loky", **loky):
        # joblib replaces a process whose memory has grown between tasks, and says so; nothing is lost
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
        yield partial(_here, n_workers)


def _here(n_workers, tasks, wait):
    pool = Parallel(n_jobs=n_workers, batch_size=1, pre_dispatch="all", return_as="generator_unordered")
    try:
        yield from pool(delayed(_compute)(task, wait) for task in tasks)
    except BrokenProcessPool as error:
        raise _DeadWorker from error


def _on_dask(client, tasks, wait):
    """Not by the Dask backend of joblib, which waits forever for a task that the scheduler gives up."""
    from distributed import KilledWorker, as_completed

    dead = None
    for future in as_completed(client.map(_compute, tasks, wait=wait, pure=False, batch_size=1000), loop=client.loop):
        try:
            settled = future.result()
        except KilledWorker as error:  # or of its next attempt, if a result died with its worker before it came here
            dead = error
            continue
        except CancelledError as error:
            raise RuntimeError("the scheduler is gone; what was finished is stored") from error
        yield settled
    if dead:
        raise _DeadWorker from dead
