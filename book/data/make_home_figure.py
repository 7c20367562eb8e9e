"""The transition at omega = 0.3 for the home page and the README: writes home_figure.json, which home_figure.py draws.

Parts: ``theory``, both branches along "alpha", both transitions and the linear baseline; ``simulation/START/ALPHA``,
trained layers, one entry a seed.
"""

import numpy as np
from command import command
from store import by_name

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.erm import train_positional_semantic
from attn_lib.theory import positional_semantic, transitions

OMEGA = 0.3
THEORY_ALPHAS = [0.05, 0.06, 0.07, 0.08, *np.arange(2, 42) / 20]  # m is born near 0.0575, steeply
TRAINED_ALPHAS = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]
D, SEEDS = 1000, range(16)
BRANCHES = ("positional", "semantic")
NAMES = ("train_loss", "test_error", "m", "theta")
RECORD = {
    "what": f"Both branches and trained layers around the transition at omega = {OMEGA}, d = {D}.",
    "seeds": f"{SEEDS[0]} to {SEEDS[-1]} in each part",
    "tolerance": 0.001,
}


def problem_at(alpha):
    return PositionalSemantic(alpha=alpha, omega=OMEGA)


def predict():
    """Both branches on a grid of alpha; collapsed points carry m = theta = 0."""
    alpha_c = transitions.alpha_c(omega=OMEGA)
    alphas = np.unique([*THEORY_ALPHAS, alpha_c])
    curves = {"alpha": alphas.tolist(), "alpha_c": alpha_c, "alpha_l": transitions.alpha_l(omega=OMEGA)}
    for start in BRANCHES:
        columns = {name: [] for name in NAMES}
        guess = None
        for alpha in alphas[::-1]:  # from large alpha, where both exist
            s = positional_semantic.solve(problem_at(alpha), start, guess=guess)
            guess = None if s.collapsed else s.overlaps
            row = (s.train_loss, s.test_error, s.overlaps.m, s.overlaps.theta)
            for name, value in zip(NAMES, row, strict=True):
                columns[name].insert(0, float(value))
        curves[start] = columns
    curves["linear_baseline"] = positional_semantic.linear_baseline(problem_at(1.0)).test_error
    return curves


def train(start, alpha, *, device):
    """One start at one alpha, one number per seed."""
    e = train_positional_semantic(problem_at(alpha), d=D, seeds=SEEDS, start=start, device=device)
    if not e.converged.all():
        raise RuntimeError(f"{start} start, alpha = {alpha}: a run did not converge")
    return {name: getattr(e, name).tolist() for name in NAMES}


def parts():
    yield "theory", predict, ()
    for start in BRANCHES:
        for alpha in TRAINED_ALPHAS:
            yield f"simulation/{start}/{alpha}", train, (start, alpha)


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
