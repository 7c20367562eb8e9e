"""Attention against the linear baseline over alpha and omega, and around alpha_l: writes linear_baseline.json.

About nine minutes on one core. The file is written after every part: an interrupted run loses nothing that was
finished, and a new run computes what is missing. Delete the file to compute everything again.

Parts: "theory/OMEGA" has both branches along alpha. "map/OMEGA/ALPHA" has the baseline on the data of the part of the
same name in phase_diagram.json. "crossing/OMEGA/D/ALPHA" has the semantic start and the baseline on the same data, near
alpha_l. "large/OMEGA" (theory) and "large/OMEGA/ALPHA" (simulation) follow the semantic minimum to large alpha.
"""

import json
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from make_phase_diagram import MAP_ALPHAS, MAP_OMEGAS, rounded
from tqdm import tqdm

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.baseline import train_linear_baseline
from attn_lib.simulation.erm import train_positional_semantic
from attn_lib.theory.positional_semantic import solve

RESULT = Path(__file__).with_name("linear_baseline.json")
VERSIONS = {"python": platform.python_version(), **{p: version(p) for p in ("numpy", "scipy", "torch")}}

THEORY_OMEGAS = np.linspace(0, 0.5, 11).round(2).tolist()
THEORY_ALPHAS = np.linspace(0.1, 2.4, 24).round(1).tolist()
# Few and close alphas around alpha_l: there the difference of the errors is nearly a straight line.
CROSSINGS = {
    0.0: (0.66, 0.70, 0.74, 0.78, 0.82),
    0.1: (0.80, 0.85, 0.90, 0.95, 1.00),
    0.3: (1.35, 1.42, 1.49, 1.56, 1.63),
}
RUNS = {1000: 12, 2000: 8}  # d: seeds at each alpha
LARGE_OMEGAS = (0.0, 0.3)
LARGE_ALPHAS = np.geomspace(2, 32, 13).round(3).tolist()
LARGE_SIMULATED, LARGE_D, LARGE_SEEDS = (3, 6, 12, 24), 300, range(3000, 3006)


def branch(omega, start, alphas, accuracy):
    """One branch along alpha, each solution starting the next one, up to where it ends."""
    columns = {name: [] for name in ("alpha", "train_loss", "test_error", "q", "m", "theta")}
    guess = None
    for alpha in alphas:
        s = solve(PositionalSemantic(alpha=alpha, omega=omega), start, accuracy=accuracy, guess=guess)
        if s.collapsed and guess is not None:
            break
        if not s.collapsed:
            guess = s.overlaps
            row = {"alpha": alpha, "train_loss": s.train_loss, "test_error": s.test_error, **guess._asdict()}
            for name, column in columns.items():
                column.append(float(row[name]))
    return columns


def theory(omega):
    """The semantic branch followed downwards, where it is born; the positional one upwards, where it may end."""
    return {
        "semantic": branch(omega, "semantic", THEORY_ALPHAS[::-1], 1e-3),
        "positional": branch(omega, "positional", THEORY_ALPHAS, 1e-3),
    }


def baseline(problem, d, seeds, n_test=2000):
    """Errors of the linear layer, one entry per seed."""
    return train_linear_baseline(problem, d=d, seeds=seeds, n_test=n_test).test_error.tolist()


def on_the_map(omega, alpha, seeds):
    """The baseline beside the stored runs of phase_diagram.json."""
    problem = PositionalSemantic(alpha=alpha, omega=omega)
    return {"omega": omega, "alpha": alpha, "d": 1000, "seeds": list(seeds), "baseline": baseline(problem, 1000, seeds)}


def semantic(omega, alpha, d, seeds, n_test):
    """The minimum reached from Q*, and the baseline, on the same data."""
    problem = PositionalSemantic(alpha=alpha, omega=omega)
    e = train_positional_semantic(problem, d=d, seeds=seeds, start="semantic", n_test=n_test, device="cpu")
    if not e.converged.all():
        raise RuntimeError(f"omega = {omega}, alpha = {alpha}, d = {d}: not converged")
    columns = {name: getattr(e, name).tolist() for name in ("train_loss", "test_error", "q", "m", "theta")}
    linear = baseline(problem, d, seeds, n_test)
    return {"omega": omega, "alpha": alpha, "d": d, "seeds": list(seeds), **columns, "baseline": linear}


def parts():
    """Every part: its name and the call that computes it. Runs at different alphas of a fit share no seed."""
    for d, n_seeds in RUNS.items():
        for omega, alphas in CROSSINGS.items():
            for i, alpha in enumerate(alphas):
                seeds = range(2000 + 100 * i, 2000 + 100 * i + n_seeds)
                yield f"crossing/{omega}/{d}/{alpha}", semantic, (omega, alpha, d, seeds, 4000)
    for omega in MAP_OMEGAS:
        for i, alpha in enumerate(MAP_ALPHAS):
            yield f"map/{omega}/{alpha}", on_the_map, (omega, alpha, range(1000 + 100 * i, 1000 + 100 * i + 4))
    for omega in LARGE_OMEGAS:
        yield f"large/{omega}", branch, (omega, "semantic", LARGE_ALPHAS, 1e-6)
        for alpha in LARGE_SIMULATED:
            yield f"large/{omega}/{alpha}", semantic, (omega, alpha, LARGE_D, LARGE_SEEDS, 4000)
    for omega in THEORY_OMEGAS:
        yield f"theory/{omega}", theory, (omega,)


def main():
    """Compute the missing parts, writing the file after each."""
    found = json.loads(RESULT.read_text()) if RESULT.exists() else {"versions": VERSIONS, "parts": {}}
    if found["versions"] != VERSIONS:
        raise SystemExit(f"{RESULT.name} was made with {found['versions']}, this is {VERSIONS}: delete it first")
    wanted = list(parts())
    done = {name: found["parts"][name] for name, _, _ in wanted if name in found["parts"]}
    for name, compute, arguments in tqdm([part for part in wanted if part[0] not in done]):
        begin = time.process_time()
        value = rounded(compute(*arguments))
        done[name] = {"cpu_seconds": round(time.process_time() - begin, 1), "value": value}
        write(done)


def write(done):
    """The record and the parts; replaced as a whole, so that an interruption cannot leave half a file."""
    seeds = [s for part in done.values() for s in part["value"].get("seeds", [])]
    record = {
        "what": "Attention against the linear baseline: theory over alpha and omega, simulations on common data.",
        "script": "book/data/make_linear_baseline.py",
        "seeds": f"{min(seeds)} to {max(seeds)}, listed with each part" if seeds else "none",
        "device": f"CPU ({platform.machine()}), {os.environ['OMP_NUM_THREADS']} thread",
        "cpu_seconds": round(sum(part["cpu_seconds"] for part in done.values())),
        "versions": VERSIONS,
    }
    lines = [f"  {json.dumps(name)}: {json.dumps(part)}" for name, part in done.items()]
    text = json.dumps({**record, "parts": "PARTS"}, indent=1).replace('"PARTS"', "{\n" + ",\n".join(lines) + "\n }")
    new = RESULT.with_suffix(".new")
    new.write_text(text + "\n")
    new.replace(RESULT)


if __name__ == "__main__":
    main()
