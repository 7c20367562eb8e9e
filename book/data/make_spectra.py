"""Eigenvalues of trained layers of full rank: writes spectra.json beside this file.

Parameters: lambda = 0.01, Delta = 0.5,
kappa = 1, two tokens. Parts, one run each:

- ``marchenko-pastur/ALPHA/D/SEED``: kappa0 = 0.5. {"alpha", "d", "seeds": [SEED], "tolerance" of the training,
  "eigenvalues" of S = W W^T/sqrt(p d), ascending, "target": those of S0};
- ``power-law/ALPHA/D/SEED``: eigenvalues sqrt(d)/i. The same, and "overlaps": squared overlaps of the eigenvectors of
  the 15 largest eigenvalues of S with those of S0, in descending order;
- ``power-law-gaussian/0.5/50/SEED``: "eigenvalues" of S trained on Gaussian measurements instead of tokens.
"""

import numpy as np
from command import command
from store import by_name

from attn_lib.problems import MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.simulation.erm import train_single_head
from attn_lib.simulation.gaussian_sensing import train_on_gaussians

RECORD = {
    "what": "Eigenvalues of trained layers of full rank, Marchenko-Pastur and power-law targets, d = 50 to 200.",
    "seeds": "one in each part, listed there",
    "tolerance": 0.01,
}
SMALL = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 1.0, 2.0, 4.0, 10.0)
# A larger alpha makes the same gradient a smaller distance from the minimum. At small alpha eigenvalues that vanish in
# the minimum decay slowly, and a smaller gradient is needed to tell them from small positive ones.
TOLERANCE = {0.02: 1e-5, 0.05: 1e-5, 0.1: 1e-5, 0.2: 1e-5, 10.0: 1e-2, 40.0: 3e-2}


def trained(alpha, d, seed, power_law, *, device):
    target = PowerLaw(gamma=1.0, d=d) if power_law else MarchenkoPastur(kappa0=0.5)
    problem = SingleHead(alpha=alpha, lam=0.01, Delta=0.5, kappa=1.0, target=target)
    tolerance = TOLERANCE.get(alpha, 1e-3)
    dtype = "float64" if tolerance < 1e-3 else "float32"
    e = train_single_head(problem, d=d, seeds=[seed], dtype=dtype, tolerance=tolerance, n_test=100, device=device)
    if not e.converged.all():
        raise RuntimeError(f"{problem}, seed {seed}: not converged")
    values, vectors = np.linalg.eigh(e.S0[0])
    result = {
        "alpha": alpha,
        "d": d,
        "seeds": [seed],
        "tolerance": tolerance,
        "eigenvalues": e.eigenvalues[0].tolist(),
        "target": values.tolist(),
    }
    if power_law:
        _, learned = np.linalg.eigh(e.W[0] @ e.W[0].T)
        result["overlaps"] = (np.einsum("ik,ik->k", vectors, learned)[:-16:-1] ** 2).tolist()
    return result


def trained_on_gaussians(alpha, d, seed, *, device):
    problem = SingleHead(alpha=alpha, lam=0.01, Delta=0.5, kappa=1.0, target=PowerLaw(gamma=1.0, d=d))
    e = train_on_gaussians(problem, d=d, seeds=[seed], n_test=100, tolerance=1e-3, device=device)
    if not e.converged.all():
        raise RuntimeError(f"{problem}, seed {seed}: not converged")
    return {"alpha": alpha, "d": d, "seeds": [seed], "tolerance": 1e-3, "eigenvalues": e.eigenvalues[0].tolist()}


def part(law, alpha, d, seed):
    return f"{law}/{alpha}/{d}/{seed}", trained, (alpha, d, seed, law == "power-law")


def parts():
    for alpha in (0.05, 0.5):
        yield from (part("marchenko-pastur", alpha, 200, seed) for seed in range(9000, 9004))
    for alpha in (0.1, 0.5):
        yield from (part("power-law", alpha, 200, seed) for seed in range(9100, 9104))
    yield from (part("power-law", 0.5, 50, seed) for seed in range(9500, 9524))
    yield from (part("power-law", 0.5, 100, seed) for seed in range(9600, 9606))
    for seed in range(9500, 9524):
        yield f"power-law-gaussian/0.5/50/{seed}", trained_on_gaussians, (0.5, 50, seed)
    for alpha in SMALL:
        yield from (part("marchenko-pastur", alpha, 100, seed) for seed in range(9200, 9203))
    yield from (part("marchenko-pastur", 0.5, 50, seed) for seed in range(9300, 9308))
    yield from (part("marchenko-pastur", 4.0, 50, seed) for seed in range(9300, 9308))
    yield part("marchenko-pastur", 4.0, 200, 9000)
    yield part("marchenko-pastur", 40.0, 100, 9400)


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
