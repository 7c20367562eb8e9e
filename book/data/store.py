"""Stored results: parts that scripts compute by name, each a cell of a sweep; and their tables in JSON.

A script make_NAME.py has ``RECORD``, ``parts()``, which yields (name, function, arguments), and
``measure = by_name(parts)``. In the record are "what" the results are, their "seeds", the "tolerance" within which they
can be computed again (a number, or one for each kind, the first word of a name, and "else"), and names of "estimates"
of errors, which need not be the same. The cells of a script are in .cache/data/NAME, where no finished part is lost;
NAME.json has the parts that the book shows, and how they were made:

- "made": versions of Python and libraries, hash of the code (null where it was not recorded), device, and date;
- "parts": by name "value", "cpu_seconds" (null where not recorded) and "made", the place in the list of that name;
- "sha256" of the parts.
"""

import inspect
import json
import math
import platform
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path

from attn_lib import sweep
from attn_lib.sweep.cells import key
from attn_lib.sweep.code import made_by
from attn_lib.sweep.store import Store

DATA = Path(__file__).resolve().parent
CELLS = DATA.parents[1] / ".cache" / "data"


def scripts():
    """Names of all scripts, without their ending."""
    return sorted(path.stem for path in DATA.glob("make_*.py"))


def result_of(script):
    """The file that a script writes."""
    return DATA / f"{script.removeprefix('make_')}.json"


def measurement_of(script):
    """Name under which a sweep finds what a script measures."""
    return f"{script}.measure"


def by_name(parts):
    """What a script measures: the part of a name.

    Parameters
    ----------
    parts : function
        Without arguments; yields (name, function, arguments). Each function returns what JSON knows, and may take a
        "device", by default a GPU where there is one.

    Returns
    -------
    function
        Of "part" and "device"; returns the value as JSON text.
    """

    @cache
    def table():
        return {name: (function, arguments) for name, function, arguments in parts()}

    def measure(*, part, device=None):
        function, arguments = table()[part]
        if "device" not in inspect.signature(function).parameters:
            value, device = function(*arguments), "cpu"
        else:
            from attn_lib.simulation._hardware import chosen_device  # which loads torch; not all scripts need it

            device = chosen_device(device)
            value = function(*arguments, device=device)
        return {"value": json.dumps(_rounded(value), allow_nan=False), "device": _described(device)}

    return measure


def committed(script):
    """What the file of a script holds; without parts if there is none."""
    path = result_of(script)
    return json.loads(path.read_text()) if path.exists() else {"made": [], "parts": {}}


def changed(making, now):
    """What is not as it was when a part was made, for instance "code"."""
    return [what for what, value in now.items() if making.get(what) != value]


def digest(parts):
    """sha256 of parts."""
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Task:
    """What a script shall compute.

    Parameters
    ----------
    script : str
    only : str
        What the names of the parts begin with.
    anew : bool
        Whether parts in the committed file count as missing.
    outdated : str, optional
        What to do with parts made with other code or versions: "keep", by default, "recompute", by default of parts
        that are computed anew, or "refuse".
    """

    def __init__(self, script, *, only="", anew=False, outdated=None):
        self.script, self.anew = script, anew
        self.outdated = outdated or ("recompute" if anew else "keep")
        self.file, now = committed(script), made_by(measurement_of(script))
        old, module = self.file["parts"], import_module(script)
        self.record, self.all = module.RECORD, list(dict.fromkeys(name for name, _, _ in module.parts()))
        self.names = [name for name in self.all if name.startswith(only)]
        known = [name for name in self.names if name in old]
        self.changed = [name for name in known if changed(self.file["made"][old[name]["made"]], now)]
        if self.changed and self.outdated == "refuse" and not anew:
            raise ValueError(
                f"{result_of(script).name}: {len(self.changed)} parts were made with other code or versions; "
                "outdated must be 'keep' or 'recompute' to go on"
            )
        kept = set() if anew else set(known) - set(self.changed if self.outdated == "recompute" else ())
        self.cells = {name: sweep.Cell(options={"part": name}) for name in self.names if name not in kept}
        self.store = Store(CELLS / script.removeprefix("make_"))

    def missing(self, retry=False):
        """Names of the parts that are neither in the file nor among the cells."""
        if not self.cells:
            return []
        how = {"outdated": self.outdated, "retry": retry}
        plan = sweep.plan(measurement_of(self.script), self.cells.values(), self.store.folder, **how)
        return [name for name, cell in self.cells.items() if key(cell) in plan.missing]

    def complete(self, **where):
        """Compute what is missing; as :func:`attn_lib.sweep.run`. Returns the failed cells."""
        if not self.cells:
            return []
        cells = self.cells.values()
        return sweep.run(measurement_of(self.script), cells, self.store.folder, outdated=self.outdated, **where).failed

    def computed(self):
        """The parts that are finished cells, "made" written out."""
        found = {}
        for name, cell in self.cells.items():
            record = self.store.record(key(cell))
            if record and record["error"] is None:
                about = {"device": record["device"], "date": record["finished"][:10]}
                found[name] = {
                    "made": {**record["made_by"], **about},
                    "cpu_seconds": round(record["cpu_seconds"], 2),
                    "value": json.loads(str(self.store.values(key(cell))["value"])),
                }
        return found

    def write(self):
        """Replace the file, unless it is the same already; one line a part."""
        known = {
            name: {**part, "made": self.file["made"][part["made"]]} for name, part in self.file["parts"].items()
        } | self.computed()
        write(self.script, self.record, {name: known[name] for name in self.all if name in known})


def write(script, record, parts):
    """Write the file of a script, in one step; nothing where it is the same already.

    Parameters
    ----------
    script : str
    record : dict
        What to tell about all parts.
    parts : dict
        With "made" written out.
    """
    made = []
    for part in parts.values():
        made += [part["made"]] if part["made"] not in made else []
    rows = {name: {**part, "made": made.index(part["made"])} for name, part in parts.items()}
    head = {"script": f"book/data/{script}.py", **record, "made": "MADE", "sha256": digest(rows), "parts": "PARTS"}
    lines = {
        "MADE": "[\n" + ",\n".join(f"  {json.dumps(making)}" for making in made) + "\n ]",
        "PARTS": "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items()) + "\n }",
    }
    text = json.dumps(head, indent=1)
    for word, content in lines.items():
        text = text.replace(f'"{word}"', content)
    path = result_of(script)
    if not path.exists() or path.read_text() != f"{text}\n":
        new = path.with_suffix(".new")
        new.write_text(f"{text}\n")
        new.replace(path)


def tolerance_of(record, part):
    """Within which a part can be computed again."""
    tolerance = record["tolerance"]
    return tolerance.get(part.partition("/")[0], tolerance["else"]) if isinstance(tolerance, dict) else tolerance


def difference(old, new, estimates=()):
    """How far two values of a part are apart.

    Parameters
    ----------
    old, new
        As JSON knows them. Numbers under the same keys, at any depth of lists, make a column.
    estimates : list of str
        Keys of columns that are left out: they estimate errors of others.

    Returns
    -------
    largest : float
        Of the differences in a column divided by its largest number (or 1e-9), the largest of all columns; infinite
        where columns of floats have other lengths, or other entries than numbers. In a "rank", the number of
        eigenvalues above a bound divided by the "d" of the part, one eigenvalue more or fewer is no difference.
    counts : list of str
        Keys of columns without floats (numbers of iterations, names, seeds) that differ.
    """
    before, after = _columns(old), _columns(new)
    largest, counts = 0.0, []
    for path in before.keys() | after.keys():
        pair = before.get(path, []), after.get(path, [])
        if pair[0] == pair[1] or {*path} & {*estimates}:
            continue
        if not any(isinstance(x, float) for column in pair for x in column):
            counts.append("/".join(path))
            continue
        alike, numbers = _pattern(pair[0]) == _pattern(pair[1]), zip(*map(_numbers, pair), strict=False)
        numbers = list(numbers)
        scale = max((abs(x) for x, _ in numbers), default=0.0)
        free = 1.001 / old["d"] if path == ("rank",) and "d" in old else 0.0
        far = max((abs(x - y) for x, y in numbers), default=0.0)
        largest = max(largest, max(far - free, 0.0) / max(scale, 1e-9) if alike else math.inf)
    return largest, sorted(counts)


def _numbers(column):
    return [x for x in column if isinstance(x, int | float) and not isinstance(x, bool)]


def _pattern(column):
    """The column with one mark in the place of every number."""
    return [_numbers if _numbers([x]) else x for x in column]


def _columns(value):
    """From paths of keys to the entries under them."""
    found = {}

    def collect(value, path):
        if isinstance(value, dict):
            for name, entry in value.items():
                collect(entry, (*path, name))
        elif isinstance(value, list):
            for entry in value:
                collect(entry, path)
        else:
            found.setdefault(path, []).append(value)

    collect(value, ())
    return found


def _described(device):
    if device == "cpu":
        return f"CPU ({platform.machine()})"
    import torch

    return torch.cuda.get_device_name(device)


def _rounded(value):
    """Nine significant digits."""
    if isinstance(value, dict):
        return {name: _rounded(v) for name, v in value.items()}
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return [_rounded(v) for v in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value
