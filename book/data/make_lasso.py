"""The LASSO beside attention, exponents in each regime: writes lasso.json beside this file.

Delta = 0.5 throughout. Parts:

- ``attention/REGIME/GAMMA``: theory of a single head, d = 1000, kappa = 1: columns "alpha", "lam", "excess" (test error
  minus that of the best multiple of the target), "delta", "epsilon", "rank";
- ``tuned/GAMMA``: the same at the lambda of least test error;
- ``peak``: the same at the interpolation threshold of the power law gamma = 1, d = 200, against lambda;
- ``lasso/REGIME/GAMMA``: theory of the LASSO at d = 100 000: columns as above;
- ``simulation/REGIME/GAMMA/ALPHA``: {"alpha", "lam", "d", "seeds", "excess" (one entry a seed)}, LASSO by scikit-learn;
- ``curve/LAM/ALPHA``: the same at d = 200, gamma = 1, for the figure of the error against n/d.
"""

import numpy as np
from command import command
from store import by_name

from attn_lib.problems import DiagonalModel, PowerLaw, SingleHead
from attn_lib.simulation.lasso import train_lasso
from attn_lib.theory import single_head as sh
from attn_lib.theory.error_decomposition import weights
from attn_lib.theory.lasso import solve_lasso
from attn_lib.theory.thresholds import alpha_interpolation
from attn_lib.theory.tuning import optimal_lam

DELTA, D, LARGE = 0.5, 1000, 100_000
# lambda of attention as prefactor and power of alpha, and the values of alpha
RULES = {
    "sequential recovery": (0.4, 0.5, np.geomspace(0.02, 2000, 16)),
    "partial shrinkage": (100.0, 0.0, np.geomspace(5, 2000, 16)),
    "full shrinkage": (1e4, 0.0, np.geomspace(1e4, 3e6, 14)),
    "variance": (0.01, 0.0, np.geomspace(100, 1e5, 10)),
}
GAMMAS = {
    "sequential recovery": (0.75, 1.0, 1.5),
    "partial shrinkage": (0.75, 1.0, 1.5),
    "full shrinkage": (0.6, 0.75),
    "variance": (0.75, 1.0),
}
TUNED = np.geomspace(0.03, 3, 5)
SIMULATED = {
    ("sequential recovery", 1.0): (200, np.geomspace(2, 50, 6)),
    ("sequential recovery", 1.5): (200, np.geomspace(2, 50, 6)),
    ("partial shrinkage", 1.0): (200, np.geomspace(36, 180, 5)),
    ("variance", 1.0): (100, np.geomspace(10, 160, 5)),
}
CURVE = {
    0.1: (0.1, 0.3, 0.6, 1.0, 1.7, 4.0, 12.0),
    1.0: (0.3, 1.0, 3.0, 10.0, 30.0),
    10.0: (1.0, 3.0, 10.0, 30.0, 60.0),
}
N_SEEDS = 24
RECORD = {
    "what": f"Exponents of LASSO and attention by regime, theory at d = {D} and {LARGE}; the LASSO simulated.",
    "seeds": f"{N_SEEDS} at each point, listed with each part",
    "tolerance": 0.01,
}
FIELDS = ("alpha", "lam", "excess", "delta", "epsilon", "rank")


def attention(regime, gamma):
    factor, power, alphas = RULES[regime]
    problems = [problem_at(alpha, factor * alpha**power, gamma) for alpha in alphas]
    e0, rows, hats = weights(problems[0]).irreducible, [], None
    for problem in problems[::-1]:
        s = sh.solve(problem, accuracy=1e-3, start=hats)
        hats = s.hats
        rows.insert(0, row(s, e0))
    return columns(rows)


def tuned(gamma):
    problems = [problem_at(alpha, 0.1, gamma) for alpha in TUNED]
    e0 = weights(problems[0]).irreducible
    return columns([row(optimal_lam(problem, accuracy=1e-3), e0) for problem in problems])


def peak():
    target, rows, hats = PowerLaw(gamma=1.0, d=200), [], None
    alpha = alpha_interpolation(target, Delta=DELTA, n_tokens=2)
    for lam in (0.3, 0.1, 0.03, 0.01, 0.003):
        problem = SingleHead(alpha=alpha, lam=lam, Delta=DELTA, kappa=1.0, target=target)
        s = sh.solve(problem, accuracy=1e-2, start=hats)
        hats = s.hats
        rows.append(row(s, weights(problem).irreducible) | {"q": float(s.overlaps.q)})
    return columns(rows)


def problem_at(alpha, lam, gamma):
    target = PowerLaw(gamma=gamma, d=D)
    return SingleHead(alpha=float(alpha), lam=float(lam), Delta=DELTA, kappa=1.0, target=target)


def row(s, e0):
    values = (s.problem.alpha, s.problem.lam, s.test_error - e0, s.delta, s.epsilon, s.rank)
    return dict(zip(FIELDS, map(float, values), strict=True))


def columns(rows):
    return {name: [row[name] for row in rows] for name in rows[0]}


def diagonal(regime, gamma, alpha, d):
    factor, power, _ = RULES[regime]
    if regime == "sequential recovery":  # the threshold that noise of variance Delta/alpha hardly passes in d entries
        factor = 2 * (2 * DELTA * np.log(d)) ** 0.5
    target = PowerLaw(gamma=gamma, d=d)
    return DiagonalModel(alpha=float(alpha), lam=float(factor * alpha**power), Delta=DELTA, target=target)


def lasso(regime, gamma):
    solutions = [solve_lasso(diagonal(regime, gamma, alpha, LARGE)) for alpha in RULES[regime][-1]]
    rows = [(s.problem.alpha, s.problem.lam, s.excess, s.delta, s.epsilon, s.active) for s in solutions]
    return columns([dict(zip(FIELDS, row, strict=True)) for row in rows])


def simulated(problem, seeds):
    e = train_lasso(problem, seeds=seeds)
    if not e.converged.all():
        raise RuntimeError(f"{problem}: not converged")
    facts = {"alpha": problem.alpha, "lam": problem.lam, "d": problem.target.d}
    return {**facts, "seeds": list(seeds), "excess": e.excess.tolist()}


def parts():
    for (regime, gamma), (d, alphas) in SIMULATED.items():
        for k, alpha in enumerate(alphas):
            problem, first = diagonal(regime, gamma, alpha, d), 20_000 + 100 * k
            yield f"simulation/{regime}/{gamma}/{alpha:.3g}", simulated, (problem, range(first, first + N_SEEDS))
    for k, (lam, alphas) in enumerate(CURVE.items()):
        for alpha in alphas:
            problem = DiagonalModel(alpha=alpha, lam=lam, Delta=DELTA, target=PowerLaw(gamma=1.0, d=200))
            yield f"curve/{lam}/{alpha}", simulated, (problem, range(21_000 + 100 * k, 21_000 + 100 * k + N_SEEDS))
    yield "peak", peak, ()
    for regime, gammas in GAMMAS.items():
        for gamma in gammas:
            yield f"lasso/{regime}/{gamma}", lasso, (regime, gamma)
            yield f"attention/{regime}/{gamma}", attention, (regime, gamma)
    for gamma in (1.0, 1.5):
        yield f"tuned/{gamma}", tuned, (gamma,)


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
