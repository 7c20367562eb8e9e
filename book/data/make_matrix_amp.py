"""Matrix message passing beside the trained layer, and the replicon: writes matrix_amp.json beside this file.

All with Marchenko-Pastur targets of kappa0 = 0.5,
Delta = 0.5, kappa = 1 and two tokens. Parts:

- ``followed/ALPHA/D``: iterates of lam = 0.01, columns "m", "q", "Sigma", "test_error" (seed, t);
- ``spectrum/D``: "eigenvalues" of the matrix before the threshold, divided by m_hat of the theory, at alpha = 0.5;
- ``trained/D``: "distance" tr (S^t - S_erm)^2 (seed, t) at alpha = 0.5, tr S_erm^2 "q", the "gradient" left, and the
  minima of the risk divided by d^2 that message passing and L-BFGS reach, "risk" and "risk_erm";
- ``growth/ALPHA/D``: factors by which tr (S_a - S_b)^2 of two runs grows, (seed, t);
- ``small/KIND/D``: the last steps tr (S^{t+1} - S^t)^2, (seed, t), at alpha = 0.05, with tokens or Gaussian matrices;
- ``replicon/LAM/ALPHA``: "R", "jump", "Sigma" of the theory, null where the solver fails.
"""

from itertools import islice

import numpy as np
import torch
from command import command
from store import by_name

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import MarchenkoPastur, SingleHead
from attn_lib.simulation.gaussian_sensing import GaussianMeasurement
from attn_lib.simulation.matrix_amp import iterates, train_by_matrix_amp
from attn_lib.simulation.matrix_passing import message_passing
from attn_lib.simulation.matrix_prox import AttentionProx
from attn_lib.simulation.sampling import generator
from attn_lib.simulation.single_head import train_single_head
from attn_lib.simulation.single_head_sampling import draw_matrix
from attn_lib.theory.matrix_replicon import jump, replicon
from attn_lib.theory.single_head import solve

RECORD = {
    "what": "Matrix message passing: iterates, distance to the trained layer, growth of a distance; replicon.",
    "seeds": "0 to 15, listed with each part",
    "tolerance": {"replicon": 0.1, "else": 0.001},  # a jump is known to a few percent, R beyond it to two digits
    "estimates": ["gradient"],  # what is left of it
}
FOLLOWED = {(0.5, 50): 16, (0.5, 100): 8, (0.5, 200): 3, (2.0, 50): 12, (2.0, 100): 4}  # (alpha, d): seeds
N_ITER = 20
TRAINED = {50: 8, 100: 4}
GROWTH = {(0.2, 100): 6, (0.5, 100): 6, (2.0, 60): 4}
N_GROWTH = 14
SMALL = (("tokens", 60), ("tokens", 120), ("tokens", 240), ("gaussian", 60))
ALPHAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 4.0, 10.0, 40.0)
LAMS = (0.01, 0.001, 0.0001)


def problem_at(alpha, lam=0.01):
    return SingleHead(alpha=alpha, lam=lam, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))


def followed(alpha, d, seeds, *, device):
    """Overlaps, response and test error of every iterate."""
    run = train_by_matrix_amp(problem_at(alpha), d=d, seeds=seeds, n_iter=N_ITER, n_test=4000, device=device)
    columns = {name: getattr(run, name).tolist() for name in ("m", "q", "Sigma", "test_error")}
    return {"seeds": list(seeds), "diverged": int(run.diverged.sum()), **columns}


def spectrum(d, seeds, *, device):
    """Eigenvalues of the matrix before the threshold at the end of a run."""
    problem = problem_at(0.5)
    run = train_by_matrix_amp(problem, d=d, seeds=seeds, n_iter=N_ITER, device=device)
    eigenvalues = np.linalg.eigvalsh(run.R) / solve(problem).hats.m_hat
    return {"seeds": list(seeds), "eigenvalues": eigenvalues.tolist()}


def trained(d, seeds, *, device):
    """Distance of the iterates to the minimum that L-BFGS finds on the same data."""
    problem = problem_at(0.5)
    minimum = train_single_head(problem, d=d, seeds=seeds, tolerance=1e-6, device=device)
    distance, risk = [], []
    for seed, W in zip(seeds, minimum.W, strict=True):
        S = torch.as_tensor(W @ W.T / (W.shape[1] * d) ** 0.5, dtype=torch.float64, device=device)
        states = iterates(problem, draw_matrix(problem, d, seed), n=round(0.5 * d**2), seed=seed, device=device)
        path = list(islice(states, 2 * N_ITER + 1))
        distance.append([((state.S - S) ** 2).sum().item() / d for state in path])
        risk.append(path[-1].loss / d**2 + problem.nuclear_penalty * path[-1].S.trace().item() / d)
    risks = {"risk": risk, "risk_erm": (minimum.train_loss + minimum.penalty).tolist()}
    gradient, q = minimum.gradient_norm.tolist(), minimum.q.tolist()
    return {"seeds": list(seeds), "distance": distance, "q": q, "gradient": gradient, **risks}


def growth(alpha, d, seeds, *, device):
    """Factors by which the squared distance of runs from 0 and from a small random matrix grows."""
    problem, factors = problem_at(alpha), []
    for seed in seeds:
        S_star = draw_matrix(problem, d, seed)
        options = {"n": round(alpha * d**2), "seed": seed, "device": device}
        pair = (iterates(problem, S_star, noise=noise, **options) for noise in (0.0, 1e-4))
        squares = [((a.S - b.S) ** 2).sum().item() for a, b in islice(zip(*pair, strict=False), N_GROWTH + 1)]
        factors.append((np.array(squares[1:]) / squares[:-1]).tolist())
    return {"seeds": list(seeds), "factors": factors}


def small(kind, d, seeds):
    """Steps of the last iterations at alpha = 0.05."""
    problem, steps = problem_at(0.05), []
    for seed in seeds:
        S_star, n = draw_matrix(problem, d, seed), round(0.05 * d**2)
        if kind == "tokens":
            states = iterates(problem, S_star, n=n, seed=seed)
        else:
            states = gaussian_iterates(problem, S_star, n, seed)
        S = [state.S for state in islice(states, 41)]
        steps.append([((b - a) ** 2).sum().item() / d for a, b in zip(S[:-1], S[1:], strict=True)][-10:])
    return {"seeds": list(seeds), "step": steps}


def gaussian_iterates(problem, S_star, n, seed):
    """Message passing with Gaussian sensing matrices of the same covariance, in place of tokens."""
    d, rng = len(S_star), generator(seed, "train")
    measurement = GaussianMeasurement(torch.as_tensor(rng.standard_normal((1, n, 3, d * (d + 1) // 2))), d)
    variance = torch.tensor([2.0, 1.0, 2.0], dtype=torch.float64)
    noise = torch.as_tensor(rng.standard_normal((n, 3))) * (problem.Delta / 2 * variance).sqrt()
    z = measurement.measure(torch.as_tensor(S_star)[None])[0] + noise
    field = torch.stack([z[:, [0, 1]], z[:, [1, 2]]], dim=1)
    prox = AttentionProx(torch.softmax(field, dim=-1), 1.0, torch.diag(variance).expand(n, 3, 3))
    S = torch.zeros(d, d, dtype=torch.float64)
    return message_passing(measurement, prox, S, Sigma=1.0, threshold=2 * problem.nuclear_penalty)


def stability(lam, alpha):
    """Replicon and jump at the fixed point."""
    try:
        solution = solve(problem_at(alpha, lam), accuracy=2e-3)
    except ConvergenceError:
        return {"R": None, "jump": None, "Sigma": None}
    return {"R": replicon(solution), "jump": jump(solution), "Sigma": solution.overlaps.Sigma}


def parts():
    """Every part: its name and the call that computes it."""
    yield "spectrum/200", spectrum, (200, range(2))
    for (alpha, d), n_seeds in GROWTH.items():
        yield f"growth/{alpha}/{d}", growth, (alpha, d, range(n_seeds))
    for kind, d in SMALL:
        yield f"small/{kind}/{d}", small, (kind, d, range(3))
    for d, n_seeds in TRAINED.items():
        yield f"trained/{d}", trained, (d, range(n_seeds))
    for (alpha, d), n_seeds in FOLLOWED.items():
        yield f"followed/{alpha}/{d}", followed, (alpha, d, range(n_seeds))
    for lam in LAMS:
        for alpha in ALPHAS:
            yield f"replicon/{lam}/{alpha}", stability, (lam, alpha)


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
