"""The command line of the scripts: python book/data/make_NAME.py --help; of all together, book/data/all.py."""

import argparse
import sys
from pathlib import Path

from joblib import cpu_count
from store import Task, committed, difference, result_of, tolerance_of

from attn_lib._checks import check_integer
from attn_lib.simulation._hardware import chosen_device
from attn_lib.sweep.command import duration
from attn_lib.sweep.planning import OUTDATED

ON_A_GPU = 4  # processes that share it

ABOUT = """\
Computes the parts that the result in book/data lacks, and writes it. Every part that is finished is kept at once in
.cache/data: an interrupted call loses none, and the next one goes on.
"""


def command(*scripts):
    """Read the arguments, compute, and end the process.

    Parameters
    ----------
    scripts : str
        Files of the scripts.
    """
    names = [Path(script).stem for script in scripts]
    p = argparse.ArgumentParser(description=ABOUT)
    p.add_argument("--dry-run", action="store_true", help="count parts, estimate the time; computes nothing")
    p.add_argument(
        "--anew",
        action="store_true",
        help="compute all parts, compare them with the stored ones, and leave these as they are",
    )
    p.add_argument("--only", default="", metavar="PREFIX", help="parts whose names begin with this")
    p.add_argument(
        "--outdated", choices=OUTDATED, help="parts made with other code (default keep; with --anew recompute)"
    )
    p.add_argument("--retry", action="store_true", help="compute parts that failed again")
    p.add_argument("--workers", type=int, metavar="N", help=f"processes (default one a core, or {ON_A_GPU} with a GPU)")
    p.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster, with book/data in PYTHONPATH everywhere")
    p.add_argument("--device", help="of the trainings: cpu, cuda, cuda:1...; by default a GPU where there is one")
    try:
        sys.exit(_run(names, p.parse_args()))
    except (ValueError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted: what was finished is kept", file=sys.stderr)
        sys.exit(130)


def _run(names, a):
    if a.workers is not None:
        check_integer("workers", a.workers, 1)
    if a.device is not None and not a.scheduler:
        chosen_device(a.device)
    workers = a.workers or (min(cpu_count(), ON_A_GPU) if (a.device or chosen_device()) != "cpu" else cpu_count())
    tasks = [Task(name, only=a.only, anew=a.anew, outdated=a.outdated) for name in names]
    if not any(task.names for task in tasks):
        raise ValueError(f"only = {a.only!r}: must be the beginning of the name of a part, as {tasks[0].all[0]!r} is")
    total, unknown, n_failed = 0.0, 0, 0
    for task in tasks:
        seconds, lacking = _announced(task, a.retry)
        total, unknown = total + seconds, unknown + lacking
    if len(tasks) > 1 or a.dry_run:
        more = f", and {unknown} parts whose time is not known" if unknown else ""
        print(f"about {duration(total / workers)} of {workers} processes{more}")
    if a.dry_run:
        return 0
    for task in tasks:
        print(f"== {task.script}", flush=True)
        where = {"workers": workers, "scheduler": a.scheduler, "device": a.device, "retry": a.retry}
        for record in task.complete(**where):
            n_failed += 1
            print(f"failed: {record['options']['part']}\n  {record['error']}")
        if not a.anew:
            task.write()
    if a.anew:
        print("\n".join(comparison(tasks)))
    if n_failed:
        print(f"{n_failed} parts failed; their records in .cache/data have the traceback; --retry computes them again")
    return 1 if n_failed else 0


def _announced(task, retry):
    """Seconds of the missing parts as far as they are known, and the number of the others."""
    missing = task.missing(retry)
    stored = task.file["parts"]
    seconds = [stored[name]["cpu_seconds"] if name in stored else None for name in missing]
    known = [s for s in seconds if s is not None]
    old = f" ({len(task.changed)} made with other or unknown code)" if task.changed and not task.anew else ""
    print(f"{task.script}: {len(task.names)} parts{old}, {len(missing)} missing, {duration(sum(known))}", flush=True)
    return sum(known), len(seconds) - len(known)


def comparison(tasks):
    """Lines of a table: computed anew against stored.

    Parameters
    ----------
    tasks : list of Task

    Returns
    -------
    list of str
    """
    lines = [
        "| result | parts | CPU time, stored | now | equal (9 digits) | largest difference | beyond the tolerance |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for task in tasks:
        new, old = task.computed(), committed(task.script)["parts"]
        estimates = task.record.get("estimates", ())
        both = [name for name in task.names if name in new and name in old]
        found = {name: difference(old[name]["value"], new[name]["value"], estimates)[0] for name in both}
        before = sum(old[name]["cpu_seconds"] or 0.0 for name in both)
        now = sum(new[name]["cpu_seconds"] for name in both)
        equal, beyond = (
            sum(x <= 2e-9 for x in found.values()),
            [name for name, x in found.items() if x > tolerance_of(task.record, name)],
        )
        cells = [
            result_of(task.script).name,
            f"{len(new)} of {len(task.names)}",
            duration(before),
            duration(now),
            equal,
            f"{max(found.values(), default=0.0):.1e}",
            f"{len(beyond)}: {', '.join(beyond[:3])}{', ...' * (len(beyond) > 3)}" if beyond else 0,
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines
