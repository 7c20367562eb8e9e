"""Scaling laws of a single head with power-law targets: writes scaling_laws.json beside this file.

Two tokens, kappa = 1, Delta = 0.5. Parts:

- ``theory/GAMMA/D``: columns over ALPHAS with lam = 0.4 sqrt(alpha): "excess", "distance" from s_star S0, "noise"
  (delta) and "threshold" (epsilon), of the state evolution;
- ``map/GAMMA/LAM``: "alpha", "excess" (null where the state evolution was not solved) at d = MAP_D;
- ``optimal/GAMMA``: columns "alpha", "lam" (of least test error) and "excess" at d = 1000, for the alphas at
  which it does not lie at lam < 1e-3;
- ``peak/LAM``: "alpha", "excess" and "distance" around the interpolation threshold for gamma = 1.5, d = 10^4;

- ``floor/GAMMA/D``: "s_star", the best multiple of the target, and its "error" on tokens, from FLOOR_SAMPLES fresh
  samples; "kurtosis" of the target's field;
- ``tokens/SERIES/GAMMA/D/ALPHA``, ``gaussians/...``: layers trained on tokens or on Gaussian measurements; "n_eff" =
  n/d; columns over seeds "m", "q", "test_error"; for tokens also "excess", the test error less that of s_star S0 on the
  same N_TEST samples, and in the series "sequential" the "eigenvalues" of the first seed (for GAMMA = 1).
"""

from functools import cache

import numpy as np
from command import command
from scipy.optimize import minimize_scalar
from scipy.special import expit
from store import by_name

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import PowerLaw, SingleHead
from attn_lib.simulation.erm import train_single_head
from attn_lib.simulation.gaussian_sensing import train_on_gaussians
from attn_lib.theory.error_decomposition import weights
from attn_lib.theory.scaling_laws import Curve, learning_curve
from attn_lib.theory.single_head import solve
from attn_lib.theory.tuning import optimal_lam

RECORD = {
    "what": "Excess test errors with power-law targets: layers trained at d = 30 to 400, theory up to d = 300 000.",
    "seeds": "listed with each part",
    "tolerance": 0.01,
}
DELTA = 0.5
FLOOR_SAMPLES, N_TEST, N_TEST_400 = 400_000, 60_000, 20_000
N_EFF = (2, 4, 8, 16, 32, 64)
SEEDS = {30: 4, 40: 4, 60: 8, 100: 8, 200: 5, 400: 2}
ALPHAS = np.geomspace(0.01, 1, 7)
DIMENSIONS = {  # as large as rounding allows: the largest eigenvalue, sqrt(d), sets the scale of the errors
    1.5: (1000, 4000, 30_000, 300_000),
    1.0: (1000, 4000, 30_000, 100_000),
    0.75: (1000, 4000, 30_000, 300_000),
}
MAP_D, MAP_GAMMAS = 200, (1.5, 1.0)
MAP_ALPHAS, MAP_LAMS = np.geomspace(1e-3, 1e5, 49), np.geomspace(1e-2, 1e3, 21)
OPTIMAL_ALPHAS = np.geomspace(0.01, 30, 8)
PEAK_LAMS = (0.1, 0.03, 0.01, 0.003, 0.001)
PEAK_ALPHAS = (0.05, 0.08, 0.12, 0.15, 0.17, 0.19, 0.21, 0.24, 0.28, 0.35, 0.5, 0.8)
SEQUENTIAL = {60: (1.0, 1.5, 0.75), 100: (1.0, 1.5, 0.75), 200: (1.0,), 400: (1.0,)}
# series: gamma, d, alphas, lam as a function of alpha
SERIES = {
    "partial shrinkage": (1.0, 100, (0.25, 0.5, 1.0, 2.0), lambda alpha: 0.5),
    "full shrinkage": (1.0, 30, (50.0, 100.0, 200.0, 400.0), lambda alpha: 15.0),
    "variance": (1.0, 40, (4.0, 8.0, 16.0, 32.0), lambda alpha: 0.1),
}


def problem_at(gamma, d, alpha, lam):
    return SingleHead(alpha=alpha, lam=lam, Delta=DELTA, kappa=1.0, target=PowerLaw(gamma=gamma, d=d))


def along(alpha):
    """The weight decay of the series "sequential"."""
    return 0.4 * alpha**0.5


def theory(gamma, d):
    curve = learning_curve(problem_at(gamma, d, 1.0, along(1.0)), ALPHAS, power=0.5)
    names = {"noise": "delta", "threshold": "epsilon"}
    columns = {name: [float(getattr(s, field)) for s in curve.solutions] for name, field in names.items()}
    return {"alpha": ALPHAS.tolist(), "excess": curve.excess.tolist(), "distance": curve.distance.tolist(), **columns}


def scanned(gamma, d, lam, alphas, accuracy):
    """Solutions from large alpha to small, None where there is none."""
    found, hats = [], None
    for alpha in alphas[::-1]:
        problem = problem_at(gamma, d, float(alpha), float(lam))
        try:
            found.insert(0, solve(problem, accuracy=accuracy, start=hats))
        except ConvergenceError:
            found.insert(0, None)
        hats = found[0].hats if found[0] else None
    return found


def curve_of(solutions):
    best = weights(solutions[0].problem)
    return Curve(solutions=tuple(solutions), irreducible=best.irreducible, s_star=best.s_star)


def row_of_map(gamma, lam):
    found = scanned(gamma, MAP_D, lam, MAP_ALPHAS, 1e-3)
    e0 = weights(problem_at(gamma, MAP_D, 1.0, lam)).irreducible
    excess = [float(s.test_error - e0) if s else None for s in found]
    return {"alpha": MAP_ALPHAS.tolist(), "excess": excess}


def optimal(gamma):
    found = []
    for alpha in OPTIMAL_ALPHAS:
        try:
            found.append(optimal_lam(problem_at(gamma, 1000, float(alpha), 1.0), accuracy=1e-3))
        except ConvergenceError:  # the error falls down to the least lam
            continue
    curve = curve_of(found)
    return {name: getattr(curve, name).tolist() for name in ("alpha", "lam", "excess")}


def peak(lam):
    curve = curve_of([s for s in scanned(1.5, 10_000, lam, PEAK_ALPHAS, 1e-2) if s])
    return {name: getattr(curve, name).tolist() for name in ("alpha", "excess", "distance")}


def fields(x, S):
    """z_11 - z_12 and z_22 - z_12 of samples x (n, 2, d)."""
    d, y = len(S), x @ S
    own, mixed = (y * x).sum(2) - np.trace(S), (y[:, 0] * x[:, 1]).sum(1)
    return (own - mixed[:, None]) / d**0.5


def fresh(rng, n, d):
    """Blocks of tokens, with the noise of their labels."""
    for begin in range(0, n, 10_000):
        size = min(10_000, n - begin)
        xi = rng.standard_normal((size, 3)) * (DELTA * np.array([1, 1, 0.5])) ** 0.5
        yield rng.standard_normal((size, 2, d), dtype=np.float32), xi[:, :2] - xi[:, 2:]


@cache
def floor(gamma, d):
    S0, rng = np.diag(PowerLaw(gamma=gamma, d=d).spectrum), np.random.default_rng(7)
    blocks = [(fields(x, S0), noise) for x, noise in fresh(rng, FLOOR_SAMPLES, d)]
    v, noise = (np.concatenate(block) for block in zip(*blocks, strict=True))

    def error(s):
        return 2 * ((expit(v + noise) - expit(s * v)) ** 2).sum(axis=1).mean()

    s_star = float(minimize_scalar(error, bounds=(0, 1.5), method="bounded").x)
    kurtosis = float((v**4).mean() / (v**2).mean() ** 2)
    return {"s_star": s_star, "error": float(error(s_star)), "kurtosis": kurtosis}


def excess(S, S0, s_star, seed):
    """Test error of S less that of s_star S0, on the same samples."""
    rng, found = np.random.default_rng([seed, 1]), []
    for x, noise in fresh(rng, N_TEST_400 if len(S) == 400 else N_TEST, len(S)):
        v, u = fields(x, S0), fields(x, S)
        y = expit(v + noise)
        found.append(2 * ((y - expit(u)) ** 2 - (y - expit(s_star * v)) ** 2).sum(axis=1))
    return float(np.concatenate(found).mean())


def tokens(gamma, d, alpha, lam, seeds, keep, *, device):
    e = train_single_head(
        problem_at(gamma, d, alpha, lam), d=d, seeds=seeds, device=device, dtype="float32", tolerance=1e-3
    )
    if not e.converged.all():
        raise RuntimeError(f"gamma = {gamma}, d = {d}, alpha = {alpha}, lam = {lam}: not converged")
    s_star = floor(gamma, d)["s_star"]
    S = e.W @ e.W.transpose(0, 2, 1) / d
    beyond = [excess(*pair, s_star, seed) for *pair, seed in zip(S, e.S0, seeds, strict=True)]
    result = {"n_eff": alpha * d, "alpha": alpha, "lam": lam, "d": d, "seeds": list(seeds), "excess": beyond}
    result |= {name: getattr(e, name).tolist() for name in ("m", "q", "test_error")}
    return result | ({"eigenvalues": e.eigenvalues[0].tolist()} if keep else {})


def gaussians(gamma, d, alpha, lam, seeds, *, device):
    e = train_on_gaussians(problem_at(gamma, d, alpha, lam), d=d, seeds=seeds, tolerance=1e-3, device=device)
    if not e.converged.all():
        raise RuntimeError(f"gamma = {gamma}, d = {d}, alpha = {alpha}, lam = {lam}: not converged")
    columns = {name: getattr(e, name).tolist() for name in ("m", "q", "test_error")}
    return {"n_eff": alpha * d, "alpha": alpha, "lam": lam, "d": d, "seeds": list(seeds), **columns}


def seeds_of(d, gamma, k):
    """Other data at every point."""
    first = 100_000 * d + round(1000 * gamma) * 10 + 10 * k
    return range(first, first + SEEDS[d])


def simulated():
    for name, (gamma, d, alphas, lam) in SERIES.items():
        yield f"floor/{gamma}/{d}", floor, (gamma, d)
        for k, alpha in enumerate(alphas):
            arguments = gamma, d, alpha, lam(alpha), seeds_of(d, gamma, 20 + k), False
            yield f"tokens/{name}/{gamma}/{d}/{alpha:.6g}", tokens, arguments
    for d, gammas in SEQUENTIAL.items():
        for gamma in gammas:
            if d > 60:
                yield f"floor/{gamma}/{d}", floor, (gamma, d)
            for k, n_eff in enumerate(N_EFF):
                alpha = n_eff / d
                arguments = gamma, d, alpha, along(alpha), seeds_of(d, gamma, k)
                if d <= 100 and n_eff <= 32:
                    yield f"gaussians/sequential/{gamma}/{d}/{alpha:.6g}", gaussians, arguments
                if d > 60 and (d < 400 or n_eff <= 32):
                    yield f"tokens/sequential/{gamma}/{d}/{alpha:.6g}", tokens, (*arguments, gamma == 1.0 and d > 100)


def parts():
    yield from simulated()
    for gamma in DIMENSIONS:
        for d in DIMENSIONS[gamma]:
            yield f"theory/{gamma}/{d}", theory, (gamma, d)
    for gamma in MAP_GAMMAS:
        for lam in MAP_LAMS:
            yield f"map/{gamma}/{lam:.6g}", row_of_map, (gamma, float(lam))
    for gamma in DIMENSIONS:
        yield f"optimal/{gamma}", optimal, (gamma,)
    for lam in PEAK_LAMS:
        yield f"peak/{lam}", peak, (lam,)


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
