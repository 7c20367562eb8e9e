"""Test error against alpha on the published slices, theory and simulation: writes slices.json beside this file.

A slice changes one of omega, sigma, lambda, or omega
and A, from omega = 0.3, sigma = 0.5, lambda = 0.01 and the default A. Parts:

- ``theory/SLICE``: {"problem": the parameters without alpha, "eps_lin": test error of the linear baseline,
  "semantic", "positional": branches, each with columns "alpha", "train_loss", "test_error", "q", "m", "theta", "V",
  "error" (largest relative quadrature error) and "collapsed" (true where the branch does not exist: the columns are
  then those of the uninformed point); "global": columns "alpha", "branch" and "test_error" of the lower train loss};
- ``simulation/SLICE/ALPHA``: {"alpha", "d", "seeds"; "train_loss", "test_error", "m", "theta", one entry a seed, of the
  run of lowest train loss among both starts and all their scales; "start": the start it came from}. A seed has
  the same data in all slices with the same problem, and other data at every alpha.
"""

import numpy as np
from command import command
from store import by_name

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.erm import train_positional_semantic
from attn_lib.theory.positional_semantic import linear_baseline, solve

OTHER_A = ((0.3, 0.7), (0.8, 0.2))
DEFAULT = {"omega": 0.3, "sigma": 0.5, "lam": 0.01}
SLICES = {
    "default": {},
    "omega=0.2": {"omega": 0.2},
    "omega=0.7": {"omega": 0.7},
    "sigma=0.3": {"sigma": 0.3},
    "sigma=0.7": {"sigma": 0.7},
    "lam=0.1": {"lam": 0.1},
    "lam=0.001": {"lam": 0.001},
    "second A, omega=0.15": {"omega": 0.15, "A": OTHER_A},
    "second A, omega=0.3": {"A": OTHER_A},
}
ALPHAS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.1, 1.3, 1.6, 2.0, 2.4, 2.8, 3.4, 4.0)
SIMULATED = (0.2, 0.5, 0.9, 1.3, 2.0, 2.8, 4.0)
D, N_SEEDS = 500, 4
ACCURACY, COARSE = 1e-3, {"lam=0.001": 1e-2}  # there each further digit takes minutes; the errors are stored
RECORD = {
    "what": f"Test error against alpha on slices in omega, sigma, lambda and A; simulations at d = {D}.",
    "seeds": f"{N_SEEDS} at each alpha, listed with each part",
    "tolerance": 0.01,
    "estimates": ["error"],
}
STARTS = ("semantic", "positional")


def theory(changed, accuracy):
    """Both branches from large alpha to small, each solution starting the next, and the global minimum."""
    base = {**DEFAULT, **changed}
    branches = {start: branch(base, start, accuracy) for start in STARTS}
    losses = np.array([branches[start]["train_loss"] for start in STARTS])
    lower = [STARTS[i] for i in losses.argmin(axis=0)]
    test_error = [branches[name]["test_error"][k] for k, name in enumerate(lower)]
    eps_lin = linear_baseline(PositionalSemantic(alpha=1.0, **base)).test_error
    whole = {"alpha": ALPHAS, "branch": lower, "test_error": test_error}
    return {"problem": base, "eps_lin": float(eps_lin), **branches, "global": whole}


def branch(base, start, accuracy):
    rows, guess = [], None
    for alpha in ALPHAS[::-1]:
        s = solve(PositionalSemantic(alpha=alpha, **base), start, accuracy=accuracy, guess=guess)
        guess = None if s.collapsed else s.overlaps
        error = max(s.quadrature_error[name] / getattr(s.overlaps, name) for name in ("q", "V"))
        row = {"alpha": alpha, "train_loss": s.train_loss, "test_error": s.test_error, **s.overlaps._asdict()}
        rows.insert(0, {**{k: float(x) for k, x in row.items()}, "error": float(error), "collapsed": bool(s.collapsed)})
    return {name: [row[name] for row in rows] for name in rows[0]}


def simulation(changed, alpha, seeds, *, device):
    problem = PositionalSemantic(alpha=alpha, **{**DEFAULT, **changed})
    runs = [train_positional_semantic(problem, d=D, seeds=seeds, start=start, device=device) for start in STARTS]
    if not all(run.converged.all() for run in runs):
        raise RuntimeError(f"{problem}: not converged")
    lower = np.argmin([run.train_loss for run in runs], axis=0)
    names = ("train_loss", "test_error", "m", "theta")
    kept = {name: np.choose(lower, [getattr(run, name) for run in runs]).tolist() for name in names}
    return {"alpha": alpha, "d": D, "seeds": list(seeds), **kept, "start": [STARTS[i] for i in lower]}


def parts():
    for name, changed in SLICES.items():
        for i, alpha in enumerate(SIMULATED):
            yield (
                f"simulation/{name}/{alpha}",
                simulation,
                (changed, alpha, range(7000 + 10 * i, 7000 + 10 * i + N_SEEDS)),
            )
    for name, changed in SLICES.items():
        yield f"theory/{name}", theory, (changed, COARSE.get(name, ACCURACY))


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
