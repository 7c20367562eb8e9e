"""From the record of pytest-benchmark to benchmarks/results.json, the table of the README, and the page on performance.

python benchmarks/report.py _build/benchmarks.json

results.json holds of every measurement its group, case and way, the least and the median processor seconds (for a
training in a process of its own: what it told), the rounds, and what the benchmark knew about it. Here are added: the
``ratio`` of a way to that of attn_lib in the same case (each per point, where there are many), and the ``fraction`` of
what the machine can do, of matrix products (``flop``) or of reading from memory (``bytes``).
"""

import json
import re
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "book" / "reference" / "performance.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- made by `make bench` -->", "<!-- end of what `make bench` made -->"

# group, case and way of the rows of the README's table, and what it calls them
HEADLINES = [
    ("Fixed point, Part I", "state evolution", "Part I, semantic", "tensor rule of degree 15"),
    ("Fixed point, Part II", "state evolution", "Part II, Marchenko-Pastur, alpha = 0.5", "tensor rule of degree 15"),
    ("Proximal operator, Part I", "proximal operator", "Part I", "scipy.optimize"),
    ("Free convolution, 500 eigenvalues", "free convolution", "power law, 500 eigenvalues, delta = 1.0", "grid"),
    ("Training, Part I, d = 400", "training", "Part I, d = 400", "gradient descent, step 0.15"),
    ("Training, Part I, d = 1000", "training", "Part I, d = 1000", "L-BFGS of torch"),
    ("Training, Part II, d = 100", "training", "Part II, d = 100", "L-BFGS of torch"),
    ("Training, Part II, d = 100", "training", "Part II, d = 100", "Adam, rate 0.1"),
    ("Loss and gradient, Part I, d = 1000", "loss and gradient", "Part I, d = 1000, n = 6000, float64", "autograd"),
    ("Loss and gradient, Part II, d = 200", "loss and gradient", "Part II, d = 200, float64", "autograd"),
]


def is_ours(entry):
    return entry["way"].startswith("attn_lib")


def per_point(entry):
    return entry["seconds"] / entry.get("points", 1)


def reduced(benchmark):
    """What is kept of one measurement."""
    known, stats = dict(benchmark["extra_info"]), benchmark["stats"]
    entry = {"group": benchmark["group"], "case": known.pop("case"), "way": known.pop("way")}
    times = {"seconds": stats["min"], "median": stats["median"], "rounds": stats["rounds"]}
    if "seconds" in known:
        times["median"] = known["seconds"]
    return {name: rounded(value) for name, value in {**entry, **times, **known}.items()}


def rounded(value):
    return float(f"{value:.4g}") if isinstance(value, float) else value


def compare(entries):
    """Add ratios and fractions."""
    machine = [entry for entry in entries if entry["group"] == "machine"]
    reading = max(e["bytes"] / e["seconds"] for e in machine if e["way"] == "read")
    for entry in entries:
        alike = [e for e in entries if all(e.get(k) == entry.get(k) for k in ("group", "case", "x"))]
        ours = next((e for e in alike if is_ours(e)), None)
        if ours and not is_ours(entry):
            entry["ratio"] = rounded(per_point(entry) / per_point(ours))
        if "flop" in entry and entry not in machine:
            dtype = entry["case"].rpartition(", ")[2]
            best = max(e["flop"] / e["seconds"] for e in machine if e["case"].endswith(dtype))
            entry["fraction"] = rounded(entry["flop"] / entry["seconds"] / best)
        if "bytes" in entry and entry not in machine:
            entry["fraction"] = rounded(entry["bytes"] / entry["seconds"] / reading)


def record(found):
    """The content of results.json."""
    entries = [reduced(benchmark) for benchmark in found["benchmarks"]]
    compare(entries)
    info = found["machine_info"]
    return {
        "what": "Times, accuracies and growth of the solvers and of training, with other ways to the same beside them.",
        "script": "make bench",
        "date": found["datetime"][:19] + "Z",
        "machine": {"processor": info["cpu"].get("brand_raw", info["machine"]), "cores": info["cpu"].get("count")},
        "threads": 1,
        "versions": {"python": info["python_version"], **{p: version(p) for p in ("numpy", "scipy", "torch")}},
        "measurements": entries,
    }


def written(seconds):
    """A time in a unit that suits it."""
    unit, name = next(((u, name) for u, name in ((1, "s"), (1e-3, "ms")) if seconds >= u), (1e-6, "µs"))
    return (
        f"{seconds / unit:#.2g}".rstrip(".") + f" {name}" if seconds / unit < 99.5 else f"{seconds / unit:.0f} {name}"
    )


def two_digits(value):
    return f"{float(f'{value:.2g}'):g}"


def described(entry):
    """Time, and how close it came or how near the machine's limit."""
    text = written(per_point(entry))
    if "error" in entry:
        text += f", error {entry['error']:.0e}"
    if "excess" in entry:
        text += f", excess {entry['excess']:.0e}"
    if "fraction" in entry:
        text += f", {entry['fraction']:.0%} of the {'memory' if 'bytes' in entry else 'arithmetic'} rate"
    return text


def table(content):
    """The rows of the README, as far as they were measured."""
    lines = ["| | `attn_lib` | beside it | ratio |", "| --- | --- | --- | ---: |"]
    for label, group, case, way in HEADLINES:
        alike = [e for e in content["measurements"] if (e["group"], e["case"]) == (group, case)]
        ours, other = next(filter(is_ours, alike)), next(e for e in alike if e["way"] == way)
        lines.append(
            f"| {label} | {described(ours)} | {way}: {described(other)} | {float(format(other['ratio'], '.2g')):g} |"
        )
    machine = content["machine"]
    head = f"Processor time on one thread of {machine['processor']}, {content['date'][:10]}:"
    return "\n".join([head, "", *lines])


def replace(path, pattern, text):
    """Replace what lies between the two groups of a pattern, which must occur once."""
    new, n = re.subn(pattern, lambda found: found[1] + text + found[2], path.read_text(), flags=re.DOTALL)
    if n != 1:
        raise SystemExit(f"{path}: {pattern} must occur once, not {n} times")
    path.write_text(new)


def main(path):
    """Write all three; nothing, with status 2, if the record lacks some of what they show."""
    try:
        content = record(json.loads(Path(path).read_text()))
        rows = table(content)
    except (OSError, ValueError, KeyError, StopIteration) as error:
        print(f"{path}: not a whole record of the benchmarks: {type(error).__name__} {error}", file=sys.stderr)
        raise SystemExit(2) from error
    lines = ",\n".join("  " + json.dumps(entry) for entry in content["measurements"])
    text = json.dumps({**content, "measurements": "LINES"}, indent=1).replace('"LINES"', f"[\n{lines}\n ]")
    RESULTS.write_text(text + "\n")
    replace(README, f"({BEGIN}).*?({END})", f"\n\n{rows}\n\n")
    replace(PAGE, '(\nMEASURED = ")[^"]*(")', content["date"])  # a page is executed again when its cells have changed
    print(rows)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
