"""Learning curves of a full-rank layer, theory and simulation: writes learning_curves.json beside this file.

Two tokens, beta = beta0 = 1. Parts:

- ``theory/CURVE``: columns over "alpha" of the solution: "test_error", "train_loss", "penalty", "rank", "m", "q",
  "Sigma", "degrees" (Sigma times its conjugate) and "error" (largest relative quadrature error of the first four);
- ``simulation/CURVE/ALPHA/D``: {"alpha", "d", "seeds"} and, one entry a seed, what the trained layer measures:
  "test_error", "test_error_se", "train_loss", "penalty", "rank", "m", "q"; "fields": the test error of Gaussian fields
  at the measured overlaps and the tr S0^2 of the target drawn; "realised", where alpha has several sizes: the theory
  with the eigenvalues of the target drawn in the place of their limiting law;
- ``tasks/D``: {"d", "seeds"}, the same measurements for "seq2lab" and "seq2seq" at alpha = 0.5 on the default curve,
  and "distance", that of the two S divided by the norm of the first;
- ``centring/CURVE/D``: {"d", "seeds"}, test error and train loss with "trace" and "empirical" centring;
- ``starts/D``: {"d", "seeds"}, "lbfgs" and "adam": one row a start, one entry a seed, with "objective" (train loss and
  penalty), "distance" of S to that of the first start of L-BFGS, divided by its norm, "start" and "scale".
"""

from dataclasses import replace

import numpy as np
from command import command
from store import by_name

from attn_lib.problems import FiniteRank, MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.simulation.erm import train_single_head
from attn_lib.theory import single_head

RECORD = {
    "what": "Test error, training loss and penalty of full-rank attention against alpha; simulations at d = 40 to 140.",
    "seeds": "2 to 32 at each point, listed with each part",
    "tolerance": 0.01,
    "estimates": ["error", "distance"],
}
TARGET = MarchenkoPastur(kappa0=0.5)
DEFAULT = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=TARGET)
CURVES = {
    "kappa=1": DEFAULT,
    "kappa=0.75": replace(DEFAULT, kappa=0.75),
    "noiseless": replace(DEFAULT, lam=0.1, Delta=0.0),
    "power law": replace(DEFAULT, target=PowerLaw(gamma=1.0, d=100)),
}
NOISELESS_SMALL = replace(DEFAULT, alpha=0.3, lam=1e-4, Delta=0.0)
ALPHAS = np.geomspace(0.05, 40, 30).round(4)
# (curve, d): alpha -> number of seeds
SIMULATED = {
    ("kappa=1", 40): {0.1: 32, 0.5: 32, 2.0: 32},
    ("kappa=1", 60): {0.1: 24, 0.5: 24, 2.0: 24},
    ("noiseless", 60): {0.1: 8, 0.2: 8, 0.5: 8, 1.0: 8},
    ("kappa=0.75", 60): {0.05: 8, 0.2: 8, 1.0: 8},
    ("kappa=1", 80): {0.1: 16, 0.5: 16, 2.0: 12},
    ("power law", 100): {0.05: 4, 0.1: 4, 0.2: 4, 0.5: 4, 1.0: 3},
    ("kappa=1", 100): {0.05: 8, 0.1: 8, 0.2: 8, 0.5: 8, 1.0: 4, 2.0: 4, 5.0: 3, 10.0: 2},
    ("kappa=1", 50): {40.0: 2},
    ("kappa=1", 140): {0.1: 6, 0.5: 4},
}
EXTRAPOLATED = (0.1, 0.5, 2.0)
N_TEST = 40_000
MEASURED = ("test_error", "train_loss", "penalty", "rank", "m", "q")
SEEDS = 10_000  # the first one; data differ between points of a curve that differ in alpha or d


def values(solution):
    o = solution.overlaps
    return {**{name: float(getattr(solution, name)) for name in MEASURED[:4]}, "m": float(o.m), "q": float(o.q)}


def theory(name):
    rows, start = [], None
    for alpha in ALPHAS:
        s = single_head.solve(replace(CURVES[name], alpha=float(alpha)), start=start)
        start = s.hats
        error = max(s.quadrature_error[n] / getattr(s, n) for n in MEASURED[:4])
        degrees = s.overlaps.Sigma * s.hats.Sigma_hat
        extra = {"Sigma": s.overlaps.Sigma, "degrees": degrees, "error": error}
        rows.append({"alpha": float(alpha), **values(s), **{k: float(v) for k, v in extra.items()}})
    return {key: [row[key] for row in rows] for key in rows[0]}


def train(problem, d, seeds, device, **options):
    """float32, in which losses and overlaps are those of float64 to 1e-5."""
    e = train_single_head(problem, d=d, seeds=seeds, n_test=N_TEST, device=device, **{"dtype": "float32", **options})
    if not e.converged.all():
        raise RuntimeError(f"{problem}, d = {d}, {options}: not converged")
    return e


def columns(e, names=(*MEASURED, "test_error_se")):
    return {name: getattr(e, name).tolist() for name in names}


def learned(e):
    return e.W @ e.W.transpose(0, 2, 1) / (e.settings.p * e.settings.d) ** 0.5


def distance(S, reference):
    return (np.linalg.norm(S - reference, axis=(1, 2)) / np.linalg.norm(reference, axis=(1, 2))).tolist()


def simulation(name, alpha, d, seeds, *, device):
    problem = replace(CURVES[name], alpha=alpha)
    e = train(problem, d, seeds, device)
    spectra = [np.linalg.eigvalsh(S0) for S0 in e.S0]
    drawn = [replace(problem, target=FiniteRank(eigenvalues=np.where(s > 1e-9, s, 0.0))) for s in spectra]
    fields = [float(single_head.test_error(p, m, q)) for p, m, q in zip(drawn, e.m, e.q, strict=True)]
    found = {"alpha": alpha, "d": d, "seeds": list(seeds), **columns(e), "fields": fields}
    if name == "kappa=1" and alpha in EXTRAPOLATED:
        start = single_head.solve(problem).hats
        rows = [values(single_head.solve(p, accuracy=1e-3, start=start)) for p in drawn]
        found["realised"] = {key: [row[key] for row in rows] for key in MEASURED}
    return found


def tasks(d, seeds, *, device):
    runs = {task: train(DEFAULT, d, seeds, device, task=task) for task in ("seq2lab", "seq2seq")}
    S, S_sequence = map(learned, runs.values())
    found = {task: columns(e) for task, e in runs.items()}
    return {"d": d, "seeds": list(seeds), **found, "distance": distance(S_sequence, S)}


def centring(problem, d, seeds, *, device):
    runs = {c: train(problem, d, seeds, device, centring=c, dtype="float64") for c in ("trace", "empirical")}
    found = {c: columns(e, ("test_error", "train_loss")) for c, e in runs.items()}
    return {"d": d, "seeds": list(seeds), **found}


def starts(d, seeds, *, device):
    """Random starts that differ in their numbers, not only their scale."""
    reference, found = None, {}
    for optimiser in ("lbfgs", "adam"):
        rows = []
        for start, scale in enumerate((1.0, 1.0, 0.01, 0.1, 3.0)):
            options = {"optimiser": optimiser, "start": start, "scale": scale}
            e = train(DEFAULT, d, seeds, device, dtype="float64", **options, **{"max_iter": 4000})
            S = learned(e)
            reference = S if reference is None else reference
            objective = (e.train_loss + e.penalty).tolist()
            iterations = {"n_iter": e.n_iter.tolist(), "objective": objective, "distance": distance(S, reference)}
            rows.append({"start": start, "scale": scale, **iterations})
        found[optimiser] = rows
    return {"d": d, "seeds": list(seeds), **found}


def parts():
    for name in CURVES:
        yield f"theory/{name}", theory, (name,)
    for d in (40, 60):
        yield f"starts/{d}", starts, (d, range(SEEDS, SEEDS + 4))
    for d, number in ((30, 8), (42, 8), (60, 4)):
        seeds = range(SEEDS, SEEDS + number)
        yield f"centring/noiseless/{d}", centring, (NOISELESS_SMALL, d, seeds)
        yield f"centring/kappa=1/{d}", centring, (DEFAULT, d, seeds)
    for d, number in ((20, 32), (40, 24), (80, 12)):
        yield f"tasks/{d}", tasks, (d, range(SEEDS, SEEDS + number))
    points = [(name, d, alpha) for (name, d), numbers in SIMULATED.items() for alpha in numbers]
    for k, (name, d, alpha) in enumerate(points, 1):
        first = SEEDS + 100 * k
        seeds = range(first, first + SIMULATED[name, d][alpha])
        yield f"simulation/{name}/{alpha}/{d}", simulation, (name, alpha, d, seeds)


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
