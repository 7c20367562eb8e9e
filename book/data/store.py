"""Results that are computed part by part: each is stored as soon as it is there, an interrupted run loses nothing."""

import json
import os
import platform
import time
from importlib.metadata import version

from tqdm import tqdm


def versions():
    """Of what the results depend on."""
    return {"python": platform.python_version(), **{p: version(p) for p in ("numpy", "scipy", "torch")}}


def complete(result, record, parts):
    """Compute the parts that the file lacks.

    Parameters
    ----------
    result : Path
        The JSON file.
    record : dict
        What it contains, by which script, with which seeds.
    parts : iterable of (name, function, arguments)
        Each value must be JSON-able. Its CPU time is stored with it.
    """
    found = json.loads(result.read_text()) if result.exists() else {"versions": versions(), "parts": {}}
    if found["versions"] != versions():
        raise SystemExit(f"{result.name} was made with {found['versions']}, this is {versions()}: delete it first")
    wanted = list(parts)
    done = {name: found["parts"][name] for name, _, _ in wanted if name in found["parts"]}
    for name, compute, arguments in tqdm([part for part in wanted if part[0] not in done]):
        begin = time.process_time()
        value = _rounded(compute(*arguments))
        done[name] = {"cpu_seconds": round(time.process_time() - begin, 1), "value": value}
        _write(result, record, done)


def _write(result, record, done):
    """One line a part, in a file that is replaced as a whole."""
    head = {
        **record,
        "device": f"CPU ({platform.machine()}), {os.environ.get('OMP_NUM_THREADS', 'all')} thread",
        "cpu_seconds": round(sum(part["cpu_seconds"] for part in done.values())),
        "versions": versions(),
    }
    lines = [f"  {json.dumps(name)}: {json.dumps(part)}" for name, part in done.items()]
    text = json.dumps({**head, "parts": "PARTS"}, indent=1).replace('"PARTS"', "{\n" + ",\n".join(lines) + "\n }")
    new = result.with_suffix(".new")
    new.write_text(text + "\n")
    new.replace(result)


def _rounded(value):
    """Nine significant digits."""
    if isinstance(value, dict):
        return {name: _rounded(v) for name, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(v) for v in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value
