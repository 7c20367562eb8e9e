"""When single modes are recovered by trained layers: writes emergence.json.

Two tokens, kappa = 1, Delta = 0.5, weight decay
1.2 sqrt(alpha). Targets: "single", four modes of eigenvalues 0.6 sqrt(d) (1, 1/2, 1/4, 1/8); "levels", three levels of
d/20 equal eigenvalues each, 4, 2 and 1. Measurements: "gaussian" (sensing matrices of Gaussian entries) or "tokens".
The weight of a mode is the squared length of the projection of its eigenvector onto the range of the learned S (mean
over the modes of a level), its strength u.S u/s. Parts:

- ``curve/TARGET/MEASUREMENTS/D``: "alpha"; "weight" and "strength" (alpha, seed, mode); "m", "q", "test_error"
  (alpha, seed).
- ``size/MEASUREMENTS/D``: "log_alpha" (seed, mode): where the weight of a single mode passes half of the predicted
  jump, by bisection in log alpha between 1/4 and 4 times the predicted size (near one of these ends: it did not);
  "theory", "spread" and "jump" (mode).
"""

import numpy as np
from command import command
from store import by_name

from attn_lib.problems import FiniteRank, SingleHead
from attn_lib.simulation.erm import train_single_head
from attn_lib.simulation.gaussian_sensing import train_on_gaussians
from attn_lib.theory.emergence import recovery_sizes

RECORD = {
    "what": "Recovery of single modes and of levels in layers trained on tokens and on Gaussian measurements.",
    "seeds": "0, 1, ... of each part, as many as its arrays have",
    "tolerance": 0.01,
}
FACTOR = 1.2  # of the weight decay
POSITIVE = 1e-2  # an eigenvalue of S above it belongs to the range; those that vanish are below 1e-3
HALVINGS = 6
N_MODES = 3  # the fourth takes too many samples
SIZES = {  # measurements and d: number of seeds
    ("gaussian", 30): 24,
    ("gaussian", 60): 16,
    ("tokens", 50): 16,
    ("tokens", 100): 16,
    ("tokens", 200): 8,
}
CURVES = (  # target, measurements, d, n/d, number of seeds
    ("single", "gaussian", 60, np.geomspace(0.8, 100, 14), 3),
    ("single", "tokens", 100, np.geomspace(0.8, 150, 14), 3),
    ("levels", "tokens", 60, 60 * np.geomspace(0.02, 4, 12), 4),
    ("levels", "tokens", 120, 120 * np.geomspace(0.02, 3, 10), 2),
)


def problem_at(name, d, alpha):
    s = 0.6 * d**0.5 * 0.5 ** np.arange(4) if name == "single" else [4.0, 2.0, 1.0]
    target = FiniteRank(eigenvalues=s, d=d if name == "single" else 20)
    return SingleHead(alpha=float(alpha), lam=FACTOR * float(alpha) ** 0.5, Delta=0.5, kappa=1.0, target=target)


def trained(problem, measurements, d, seed, device):
    if measurements == "gaussian":
        e = train_on_gaussians(problem, d=d, seeds=[seed], tolerance=1e-3, device=device)
        S = e.S[0]
    else:
        e = train_single_head(problem, d=d, seeds=[seed], device=device, dtype="float32", tolerance=1e-3)
        S = e.W[0] @ e.W[0].T / d
    if not e.converged.all():
        raise RuntimeError(f"{problem}, d = {d}, seed = {seed}: not converged")
    return S, e


def measured(S, S0, levels):
    """Weight and strength of each level, a list of its eigenvalues."""
    s, u = np.linalg.eigh(S0)
    x, v = np.linalg.eigh(S)
    weight, strength = ((v[:, x > POSITIVE].T @ u) ** 2).sum(axis=0), np.einsum("ij,ij->j", u, S @ u)
    same = [np.isclose(s, level) for level in levels]
    return [weight[k].mean() for k in same], [strength[k].mean() / level for k, level in zip(same, levels, strict=True)]


def curve(name, measurements, d, alphas, n_seeds, *, device):
    columns = {key: [] for key in ("weight", "strength", "m", "q", "test_error")}
    for alpha in alphas:
        problem, rows = problem_at(name, d, alpha), []
        for seed in range(n_seeds):
            S, e = trained(problem, measurements, d, seed, device)
            weight, strength = measured(S, e.S0[0], problem.target.eigenvalues)
            rows.append((weight, strength, e.m[0], e.q[0], e.test_error[0]))
        for column, values in zip(columns.values(), zip(*rows, strict=True), strict=True):
            column.append([np.asarray(v).tolist() for v in values])
    return {"d": d, "alpha": [float(a) for a in alphas], **columns}


def sizes(measurements, d, n_seeds, *, device):
    start = problem_at("single", d, 0.1)
    predicted = recovery_sizes(start, n_modes=N_MODES)

    def crossing(seed, i):
        low, high = (np.log(predicted[i].alpha * factor) for factor in (0.25, 4))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            problem = problem_at("single", d, np.exp(middle))
            S, e = trained(problem, measurements, d, seed, device)
            weight = measured(S, e.S0[0], problem.target.eigenvalues)[0][i]
            low, high = (low, middle) if weight > predicted[i].jump / 2 else (middle, high)
        return (low + high) / 2

    return {
        "d": d,
        "log_alpha": [[crossing(seed, i) for i in range(N_MODES)] for seed in range(n_seeds)],
        "theory": [float(np.log(r.alpha)) for r in predicted],
        "spread": [r.spread(d) for r in predicted],
        "jump": [r.jump for r in predicted],
    }


def parts():
    for name, measurements, d, n_per_d, n_seeds in CURVES:
        yield f"curve/{name}/{measurements}/{d}", curve, (name, measurements, d, n_per_d / d, n_seeds)
    for (measurements, d), n_seeds in SIZES.items():
        yield f"size/{measurements}/{d}", sizes, (measurements, d, n_seeds)


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
