"""The command line of a sweep: ``python -m attn_lib sweep --help``."""

import argparse

import numpy as np
from joblib import cpu_count

from attn_lib import problems
from attn_lib._checks import check_integer
from attn_lib.sweep.cells import grid, key
from attn_lib.sweep.engine import run
from attn_lib.sweep.planning import OUTDATED, plan

__all__ = ["add_to", "axis", "duration"]

EXAMPLES = """\
examples:
  a phase diagram of Part I, 26 x 26 problems with 4 seeds each
    python -m attn_lib sweep PositionalSemantic trained.both_starts phases \\
      alpha=linspace:0.5:3:26 omega=linspace:0:0.5:26 d=1000 seeds=range:0:4 --dry-run
  a learning curve of Part II: theory, then simulation
    python -m attn_lib sweep SingleHead solved.single_head limit \\
      alpha=geomspace:0.05:5:20 lam=0.01 Delta=0.5 kappa=1 target=MarchenkoPastur:kappa0=0.5
    python -m attn_lib sweep SingleHead trained.single_head runs \\
      alpha=0.1,0.5,2 lam=0.01 Delta=0.5 kappa=1 target=MarchenkoPastur:kappa0=0.5 d=100,200 seeds=range:0:8
"""

RESERVED = {"", "problem", "batch", "device"}
SPACINGS = {"linspace": np.linspace, "geomspace": np.geomspace}


def add_to(commands):
    """Add the command to others.

    Parameters
    ----------
    commands
        What ``ArgumentParser.add_subparsers`` returned.
    """
    about = "Compute a measurement on a grid of problems and seeds; a second call computes only what is missing."
    p = commands.add_parser(
        "sweep",
        help="a grid of problems and seeds",
        description=about,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("problem", metavar="PROBLEM", help="PositionalSemantic or SingleHead")
    p.add_argument(
        "measurement",
        metavar="MEASUREMENT",
        help="solved.both_branches, solved.single_head, trained.both_starts, trained.single_head, or module.function",
    )
    p.add_argument("folder", metavar="FOLDER", help="where the cells are stored; it may hold a part of them already")
    p.add_argument(
        "axes",
        nargs="+",
        metavar="NAME=VALUES",
        help="fields of the problem, seeds, other arguments of the measurement; values 0.5,1,2 or linspace:0:1:11 or "
        "geomspace:0.1:10:5 or range:0:8 (without 8), targets MarchenkoPastur:kappa0=0.5 or PowerLaw:gamma=1:d=100",
    )
    p.add_argument("--dry-run", action="store_true", help="count cells, estimate the time; computes at most one")
    p.add_argument("--workers", type=int, metavar="N", help="processes, by default one a core")
    p.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster, whose workers then compute")
    p.add_argument("--device", help="cpu, cuda, cuda:1...; by default a GPU where there is one")
    p.add_argument("--batch", type=int, default=1, metavar="N", help="seeds to a cell, to fill a GPU (default 1)")
    p.add_argument("--retry", action="store_true", help="compute cells that failed again")
    p.add_argument("--outdated", choices=OUTDATED, default="refuse", help="cells made with other code (default refuse)")
    p.set_defaults(command=_sweep)


def axis(text):
    """The values of one axis.

    Parameters
    ----------
    text : str
        As on the command line, after the equals sign.

    Returns
    -------
    list

    Raises
    ------
    ValueError
        Of a spacing or a target: unknown or wrong arguments.

    Examples
    --------
    >>> axis("0.5,1"), axis("linspace:0:0.3:4"), axis("range:0:3"), axis("MarchenkoPastur:kappa0=0.5")
    ([0.5, 1], [0.0, 0.1, 0.2, 0.3], [0, 1, 2], [MarchenkoPastur(kappa0=0.5)])
    """
    values = []
    for item in text.split(","):
        name, *arguments = item.split(":")
        if not arguments:
            values.append(_value(item))
        elif name in SPACINGS or name == "range":
            try:
                low, high, *n = map(_value, arguments)
                spaced = range(low, high, *n) if name == "range" else SPACINGS[name](low, high, *n)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{item!r}: must be like linspace:0:1:11, geomspace:0.1:10:5 or range:0:8") from error
            values += spaced if name == "range" else [float(f"{v:.12g}") for v in spaced]
        elif isinstance(getattr(problems, name, None), type):
            try:
                if any(argument.count("=") != 1 for argument in arguments):
                    raise TypeError("must be NAME=VALUE")
                fields = {key: _value(value) for key, value in (argument.split("=") for argument in arguments)}
                values.append(getattr(problems, name)(**fields))
            except TypeError as error:
                raise ValueError(f"{item!r}: must be like MarchenkoPastur:kappa0=0.5") from error
        else:
            raise ValueError(f"{item!r}: must begin with linspace, geomspace, range, or the name of a target")
    return values


def _value(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text.lower(), text)


def _sweep(arguments):
    a = arguments
    axes = dict(text.partition("=")[::2] for text in a.axes)
    if len(axes) < len(a.axes):
        raise ValueError("NAME=VALUES: must be given once for each name")
    for name in RESERVED & axes.keys():
        raise ValueError(f"{name!r}: must not be the NAME of NAME=VALUES (problem, batch and device are set elsewhere)")
    if a.workers is not None:
        check_integer("workers", a.workers, 1)
    if a.device is not None and not a.scheduler:
        from attn_lib.simulation._hardware import chosen_device  # with torch, which no other sweep needs here

        chosen_device(a.device)
    problem = getattr(problems, a.problem, None)
    cells = grid(problem or a.problem, batch=a.batch, **{name: axis(text) for name, text in axes.items()})
    short = a.measurement.count(".") == 1 and a.measurement.startswith(("solved.", "trained."))
    measurement = f"attn_lib.sweep.{a.measurement}" if short else a.measurement
    options = {"device": a.device, "outdated": a.outdated}
    found = plan(measurement, cells, a.folder, retry=a.retry, **options)
    print(found)
    if found.outdated:
        print(f"{len(found.outdated)} made with other code: {a.outdated}")
    if a.dry_run:
        return _estimate(measurement, cells, found, a, options)
    where = {"workers": a.workers, "scheduler": a.scheduler}
    outcome = run(measurement, cells, a.folder, retry=a.retry, **where, **options)
    print(f"{len(cells) - len(outcome.failed)} cells done; the table: attn_lib.sweep.read({a.folder!r})")
    for record in outcome.failed:
        what = {name: record[name] for name in ("problem", "seeds", "options")}
        print(f"failed: {what}\n  {record['error']}")
    if outcome.failed:
        print(f"{len(outcome.failed)} cells failed; their records have the traceback; --retry computes them again")
    return 1 if outcome.failed else 0


def _estimate(measurement, cells, found, a, options):
    """Say how long the missing cells will take; where none is done, after one of them."""
    if found.missing and not found.done:
        print("none is done yet: one is computed and stored, to measure the time")
        first = next(iter(found.missing))
        one = [cell for cell in cells if key(cell) == first]
        outcome = run(measurement, one, a.folder, workers=1, scheduler=a.scheduler, progress=False, **options)
        if outcome.failed:
            print(f"it failed: {outcome.failed[0]['error']}")
            return 1
        found = plan(measurement, cells, a.folder, retry=a.retry, **options)
    n_workers = 1 if a.scheduler else a.workers or cpu_count()
    last = f"from the {len(found.done)} done" if found.missing else "nothing is missing"
    print(f"about {duration(found.seconds(n_workers))} of {n_workers} worker(s), {last}")
    return 0


def duration(seconds):
    """As it is told to people.

    Parameters
    ----------
    seconds : float

    Returns
    -------
    str
    """
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
