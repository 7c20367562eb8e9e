"""Parts of the excess error of a single head, in theory and in trained layers: writes error_decomposition.json.

Two tokens, kappa = 1, Delta = 0.5. Parts:

- ``curve/TARGET``: "alpha", "lam"; "isolated" and "coupled", each with columns over alpha: "over", "under", "approx",
  "mismatch", "s", "R2", "recovered", "radial", "c1_local", "distance", "excess"; "weights": "s_star", "irreducible",
  "c1", "c2". Power laws at d = 1000 with lam = 0.4 sqrt(alpha), and a Marchenko-Pastur target with lam = 0.01.
- ``map/LAM``: "alpha"; columns "deviation" (of the total), "distance_deviation" (isolated levels), "expansion" (the
  deviation of the total with coupled levels), "recovered" for gamma = 1, d = 200; null where the state evolution was
  not solved.
- ``trained/TARGET/D/ALPHA/LAM``: columns over seeds, of layers trained at dimension D: "m", "q", "test_error", and
  "m_bulk", "q_bulk", the part of m and q in the eigenvectors of S below the largest r d ones; "recovered" is r;
  "square" and "Q0" are tr S0^2 over the r d largest eigenvalues and over all.
"""

import numpy as np
from command import command
from store import by_name

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.simulation.erm import train_single_head
from attn_lib.theory.error_decomposition import decompose, weights
from attn_lib.theory.single_head import solve

RECORD = {
    "what": "Parts of the excess error: power laws at d = 1000 and a Wishart target; trained layers at d = 40 to 200.",
    "seeds": "listed with each part",
    "tolerance": 0.01,
}
CURVES = {"gamma=1": 1.0, "gamma=1.5": 1.5, "gamma=0.75": 0.75}
ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0)
WISHART_ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 40.0)
MAP_ALPHAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
MAP_LAMS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
PARTS = ("over", "under", "approx", "mismatch", "s", "R2", "recovered", "radial", "c1_local", "distance", "excess")
TRAINED = (
    ("gamma=1", 100, 0.03, 6),
    ("gamma=1", 100, 0.1, 6),
    ("gamma=1", 100, 0.3, 6),
    ("gamma=0.75", 100, 0.3, 6),
    ("wishart", 100, 0.5, 4),
    ("gamma=1", 100, 1.0, 4),
    ("gamma=1", 200, 0.1, 3),
    ("many samples", 40, 20.0, 4),
    ("gamma=1", 200, 0.3, 2),
)


def problem_at(name, alpha, d):
    lam = 0.01 if name in ("wishart", "many samples") else 0.4 * alpha**0.5
    target = MarchenkoPastur(kappa0=0.5) if name == "wishart" else PowerLaw(gamma=CURVES.get(name, 1.0), d=d)
    return SingleHead(alpha=alpha, lam=lam, Delta=0.5, kappa=1.0, target=target)


def solved(problem, hats=None):
    """The solution, from hats or from the default start; None where there is none."""
    try:
        return solve(problem, accuracy=1e-3, start=hats)
    except ConvergenceError:
        return solved(problem) if hats else None


def curve(name, d, alphas):
    """From many samples to few, each solution starting the next."""
    solutions, hats = [], None
    for alpha in alphas[::-1]:
        solutions.insert(0, solve(problem_at(name, alpha, d), accuracy=1e-3, start=hats))
        hats = solutions[0].hats
    result = {"alpha": alphas, "lam": [s.problem.lam for s in solutions]}
    for levels, isolated in (("isolated", True), ("coupled", False)):
        found = [decompose(s, isolated=isolated) for s in solutions]
        result[levels] = {part: [float(getattr(f, part)) for f in found] for part in PARTS}
    return result | {"weights": weights(solutions[0].problem)._asdict()}


def row_of_map(lam):
    columns = {name: [] for name in ("deviation", "distance_deviation", "expansion", "recovered")}
    hats = None
    for alpha in MAP_ALPHAS[::-1]:
        target = PowerLaw(gamma=1.0, d=200)
        s = solved(SingleHead(alpha=alpha, lam=lam, Delta=0.5, kappa=1.0, target=target), hats)
        hats = s.hats if s else None
        values = (None,) * 4
        if s and s.rank > 0:
            isolated, coupled = decompose(s), decompose(s, isolated=False)
            values = isolated.deviation, isolated.distance_deviation, coupled.deviation, isolated.recovered
        for column, value in zip(columns.values(), values, strict=True):
            column.insert(0, None if value is None else float(value))
    return {"alpha": MAP_ALPHAS, **columns}


def trained(name, d, alpha, n_seeds, *, device):
    problem = problem_at(name, alpha, d)
    r = decompose(solve(problem, accuracy=1e-3), isolated=False).recovered
    first = round(1000 * alpha) + 10_000 * d
    e = train_single_head(
        problem, d=d, seeds=range(first, first + n_seeds), device=device, dtype="float32", tolerance=1e-3, n_test=40_000
    )
    if not e.converged.all():
        raise RuntimeError(f"{name}, d = {d}, alpha = {alpha}: not converged")
    parts = [below(W @ W.T / d, S0, round(r * d)) for W, S0 in zip(e.W, e.S0, strict=True)]
    m_bulk, q_bulk = zip(*parts, strict=True)
    columns = {"m": e.m, "q": e.q, "test_error": e.test_error, "m_bulk": m_bulk, "q_bulk": q_bulk}
    lists = {column: [float(v) for v in values] for column, values in columns.items()}
    squares = [float(x) for x in (np.linalg.eigvalsh(e.S0)[:, d - round(r * d) :] ** 2).sum(axis=1) / d]
    Q0 = [float(x) for x in (e.S0**2).sum(axis=(1, 2)) / d]
    head = {"d": d, "alpha": alpha, "lam": problem.lam, "recovered": r, "seeds": e.seeds.tolist()}
    return head | lists | {"square": squares, "Q0": Q0}


def below(S, S0, n_modes):
    """Contributions to m and q of all eigenvectors but those of the n_modes largest eigenvalues."""
    levels, v = np.linalg.eigh(S)
    bulk = slice(0, len(S) - n_modes)
    overlap = np.einsum("ij,ij->j", v, S0 @ v)
    return (levels * overlap)[bulk].sum() / len(S), (levels**2)[bulk].sum() / len(S)


def parts():
    for name in CURVES:
        yield f"curve/{name}", curve, (name, 1000, ALPHAS)
    yield "curve/wishart", curve, ("wishart", None, WISHART_ALPHAS)
    for lam in MAP_LAMS:
        yield f"map/{lam}", row_of_map, (lam,)
    for name, d, alpha, n_seeds in TRAINED:
        lam = round(problem_at(name, alpha, d).lam, 6)
        yield f"trained/{name}/{d}/{alpha}/{lam}", trained, (name, d, alpha, n_seeds)


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
