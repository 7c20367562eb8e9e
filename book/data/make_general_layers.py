"""State evolution and simulation of layers with two columns, three tokens, two covariances: general_layers.json."""

import numpy as np
import torch
from command import command
from store import by_name

from attn_lib.problems import GeneralAttention
from attn_lib.simulation.general import train_general
from attn_lib.simulation.general_risk import GeneralRisk, PositionalEncoding, draw_tokens
from attn_lib.simulation.sampling import generator
from attn_lib.theory.general_layer import solve, value_side

RECORD = {
    "what": "State evolution and simulation of layers with two columns, three tokens, two covariances.",
    "seeds": "0 to 3101, listed with each part",
    "tolerance": 0.001,
    "estimates": ["standard_error"],
}

OMEGA = 0.3
A2 = ((0.6, 0.4), (0.4, 0.6))
A3 = ((0.6, 0.2, 0.2), (0.2, 0.6, 0.2), (0.2, 0.2, 0.6))
# Token 1 is broad in half of the directions, token 2 isotropic; both have the variance of a component of other pages.
TWO_COVARIANCES = {"spectrum_weights": (0.5, 0.5), "spectrum_values": ((0.4, 0.1), (0.25, 0.25))}
LAYERS = {
    "two_columns": {"A": A2, "rank": 2},
    "three_tokens": {"A": A3, "rank": 2},
    "three_tokens_one_column": {"A": A3, "rank": 1},
    "two_covariances": {"A": A2, "rank": 1, **TWO_COVARIANCES},
}
POINTS = {2: {"n_points": 2**11, "n_replicates": 4}, 3: {"n_points": 2**10, "n_replicates": 4}}  # by number of tokens
TWO_COLUMNS_ALPHAS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
TWO_COLUMNS_RUNS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
THREE_TOKENS_ALPHAS = (0.5, 1.0, 1.5, 2.0, 3.0)
LEARNING_RATE = 0.15  # of the published runs, which make 5000 steps


def layer(name, alpha):
    return GeneralAttention(alpha=alpha, omega=OMEGA, **LAYERS[name])


def theory(name, start, alpha):
    """One branch at one alpha, with standard errors."""
    problem = layer(name, alpha)
    s = solve(problem, start, **POINTS[problem.n_tokens])
    numbers = {n: getattr(s, n) for n in ("train_loss", "test_error", "moreau")} | s.overlaps._asdict()
    errors = {n: s.standard_error[n] for n in numbers}
    shift = value_side(problem, s.overlaps)._asdict()
    numbers = {n: np.asarray(v).tolist() for n, v in numbers.items()}
    return {"alpha": alpha, **numbers, "standard_error": errors, "value_side": shift}


def simulation(name, start, alpha, d, seeds, scales, *, device):
    """Minima from one start, one entry per seed."""
    e = train_general(layer(name, alpha), d=d, seeds=seeds, start=start, scales=scales, device=device)
    if not e.converged.all():
        raise RuntimeError(f"{name}, {start} start, alpha = {alpha}: not converged")
    columns = {n: getattr(e, n).tolist() for n in ("train_loss", "test_error", "q", "m", "theta")}
    return {"alpha": alpha, "d": d, "seeds": list(seeds), **columns}


def descent(name, alpha, d, seed, steps, *, device):
    """Plain gradient descent from a random start of scale 0.1, after some steps; and L-BFGS from the same point."""
    problem = layer(name, alpha)
    Q_star = generator(seed, "target").standard_normal((d, 1))
    sample, p = draw_tokens(problem, Q_star, n=round(alpha * d), seed=seed), PositionalEncoding(problem, d).vectors
    kind = {"device": device, "dtype": torch.float64}
    risk = GeneralRisk([sample], p, rank=problem.rank, lam=problem.lam, **kind)
    Q = 0.1 * torch.as_tensor(generator(seed, "start").standard_normal((1, 1, d * problem.rank)), device=device)
    found = {
        "alpha": alpha,
        "d": d,
        "seeds": [seed],
        "steps": list(steps),
        "train_loss": [],
        "m": [],
        "theta": [],
    }
    for step in range(steps[-1] + 1):
        loss, in_fields = risk.loss(risk.fields(Q))
        if step in steps:
            found["train_loss"].append(float(loss + problem.lam / 2 * (Q**2).sum(-1)) / d)
            columns = Q.reshape(d, problem.rank).cpu().numpy()
            found["m"].append(float(np.linalg.norm(p[0] @ columns / d**0.5)))
            found["theta"].append(float(np.linalg.norm(Q_star[:, 0] @ columns / d * problem.token_variances[0])))
        Q = Q - LEARNING_RATE * (risk.adjoint(in_fields) + problem.lam * Q)
    lbfgs = train_general(problem, d=d, seeds=[seed], start="random", scales=(0.1,), device=device)
    return {**found, "lbfgs_train_loss": float(lbfgs.train_loss[0])}


def parts():
    """Every part: its name and the call that computes it. Runs at different alphas share no seed."""
    for start in ("mixed", "positional", "semantic"):
        for alpha in TWO_COLUMNS_ALPHAS:
            yield f"theory/two_columns/{start}/{alpha}", theory, ("two_columns", start, alpha)
    for start, scale, n in (("random", 0.1, 8), ("mixed", 0.25, 4)):
        for i, alpha in enumerate(TWO_COLUMNS_RUNS):
            run = ("two_columns", start, alpha, 1000, range(100 * i, 100 * i + n), (scale,))
            yield f"simulation/two_columns/{start}/{alpha}", simulation, run
    for start in ("mixed", "semantic", "positional"):
        # the positional branch of three tokens ends near alpha = 2
        for i, alpha in enumerate(THREE_TOKENS_ALPHAS[: 3 if start == "positional" else None]):
            yield f"theory/three_tokens/{start}/{alpha}", theory, ("three_tokens", start, alpha)
            run = ("three_tokens", start, alpha, 500, range(1000 + 100 * i, 1000 + 100 * i + 6), (0.25,))
            yield f"simulation/three_tokens/{start}/{alpha}", simulation, run
    for alpha in THREE_TOKENS_ALPHAS:
        call = ("three_tokens_one_column", "semantic", alpha)
        yield f"theory/three_tokens_one_column/semantic/{alpha}", theory, call
    for start in ("semantic", "positional"):
        yield f"theory/two_covariances/{start}/2.0", theory, ("two_covariances", start, 2.0)
        for d in (500, 1000):
            run = ("two_covariances", start, 2.0, d, range(2000, 2006), (0.05, 0.25))
            yield f"simulation/two_covariances/{start}/{d}", simulation, run
    for seed in range(3000, 3004):
        yield f"descent/two_columns/2.0/{seed}", descent, ("two_columns", 2.0, 400, seed, (5000, 20000))
    for seed in range(3100, 3102):
        yield f"descent/two_columns/2.0/{seed}", descent, ("two_columns", 2.0, 1000, seed, (5000,))


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
